"""A strict client: it reads what a server writes by the letter, and says what is wrong with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

BOUND_S = 20.0
"""More than all limits of the proxy in a campaign together: longer is a hang."""
LEAVE_S = 0.05
"""A request that is not whole is left after so long without an answer."""
BETWEEN_PIECES_S = 0.002
"""So that they are two reads at the other end, mostly."""
LIMIT = 16 * 2**20


class Malformed(Exception):
    """What came is no HTTP/1.1 response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    status: int
    headers: dict[str, str]
    kept: bool
    """The connection may be used again: HTTP/1.1, and nothing said to the contrary."""
    body: bytes
    whole: bool
    """False if the connection ended before the body did."""


class Connection:
    """One connection to the proxy; made when it is first used, and made again after `close`."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(self, pieces: Sequence[bytes], answers: int) -> list[Reply]:
        """Sends, and reads so many answers, or what comes before the connection ends; with 0
        answers due, those that come soon. Raises TimeoutError and Malformed."""
        reader, writer = await self._open()
        replies: list[Reply] = []
        head_only = b"".join(pieces).startswith(b"HEAD ")
        try:
            for number, piece in enumerate(pieces):
                if number:
                    await asyncio.sleep(BETWEEN_PIECES_S)
                if not writer.is_closing():  # uvloop's transport throws then
                    writer.write(piece)
            async with asyncio.timeout(BOUND_S if answers else LEAVE_S):
                while len(replies) < (answers or LIMIT):
                    reply = await _reply(reader, head_only)
                    if reply is None:
                        break
                    replies.append(reply)
                    if not reply.whole:
                        break
        except TimeoutError:
            self.close()
            if answers:
                raise
        except ConnectionError:
            self.close()
        except BaseException:
            self.close()
            raise
        done = answers and len(replies) == answers and replies[-1].whole
        if not done or not replies[-1].kept:
            self.close()
        return replies

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None or self._streams[0].at_eof():
            self.close()
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=LIMIT)
        return self._streams

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


async def _reply(reader: asyncio.StreamReader, head_only: bool) -> Reply | None:
    """The next final response; None at the end of the connection."""
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise Malformed("half a head") from None
            return None
        status, kept, headers = parsed_head(head)
        if status >= 200:
            break
    if head_only or status in (204, 304):
        return Reply(status=status, headers=headers, kept=kept, body=b"", whole=True)
    if "transfer-encoding" in headers:
        body, whole = await _chunked(reader)
    elif "content-length" in headers:
        body, whole = await _sized(reader, int(headers["content-length"]))
    else:
        raise Malformed("a body without framing on a kept connection")
    return Reply(status=status, headers=headers, kept=kept, body=body, whole=whole)


VERSIONS = ("HTTP/1.1", "HTTP/1.0", "HTTP/0.9")
"""aiohttp answers a request line that names no version under the last one."""


def parsed_head(head: bytes) -> tuple[int, bool, dict[str, str]]:
    """Status, whether the connection is kept, headers by lower-case name. Raises Malformed."""
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    code = rest[:3]
    if version not in VERSIONS or not (code.isdecimal() and len(code) == 3):
        raise Malformed("the status line")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or "\n" in value or "\r" in value:
            raise Malformed("a header line")
        if name.lower() in headers and name.lower() in ("content-length", "transfer-encoding"):
            raise Malformed("two framing headers")
        headers[name.lower()] = value.strip()
    if "content-length" in headers and "transfer-encoding" in headers:
        raise Malformed("two framings")
    kept = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
    return int(code), kept, headers


async def _sized(reader: asyncio.StreamReader, size: int) -> tuple[bytes, bool]:
    try:
        return await reader.readexactly(size), True
    except asyncio.IncompleteReadError as error:
        return error.partial, False


async def _chunked(reader: asyncio.StreamReader) -> tuple[bytes, bool]:
    pieces: list[bytes] = []
    try:
        while True:
            line = await reader.readuntil(b"\r\n")
            size = int(line, 16)
            data = await reader.readexactly(size + 2)
            if data[-2:] != b"\r\n":
                raise Malformed("a chunk")
            if not size:
                return b"".join(pieces), True
            pieces.append(data[:-2])
    except asyncio.IncompleteReadError:
        return b"".join(pieces), False
    except ConnectionError:
        return b"".join(pieces), False
    except ValueError:
        raise Malformed("a chunk's size") from None
