"""An HTTP client that hides nothing: the exact bytes of one answer, and how its body ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit


class BodyEnd(StrEnum):
    WHOLE = "whole"  # the last chunk, or as many bytes as announced
    ABORTED = "aborted"  # the connection ended before that
    CLOSED = "closed"  # no framing: its end is that of the connection


@dataclass(frozen=True, slots=True, kw_only=True)
class RawAnswer:
    """`headers` in the order they came, names in lower case. `closed`: the connection ended after
    it, with nothing more; None if that was not waited for."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes
    end: BodyEnd
    closed: bool | None = None

    def header(self, name: str) -> str | None:
        return next((value for known, value in self.headers if known == name.lower()), None)

    def json(self) -> Any:
        """Raises ValueError."""
        return json.loads(self.body)


def post(
    target: str, body: bytes, headers: Mapping[str, str | None] | None = None, method: str = "POST"
) -> bytes:
    """A request's bytes. A header given as None is left out."""
    lines: dict[str, str | None] = {
        "Host": "prefold.test",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **(headers or {}),
    }
    head = [f"{method} {target} HTTP/1.1"]
    head += [f"{name}: {value}" for name, value in lines.items() if value is not None]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


async def ask(
    url: str, request: bytes, *, seconds: float = 20.0, await_close: bool = False
) -> RawAnswer:
    """Send and read one answer; interim (1xx) ones are skipped. Raises TimeoutError, and
    ConnectionError if no answer came."""
    parts = urlsplit(url)
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=2**20)
        sending = asyncio.ensure_future(_write(writer, request))
        try:
            answer = await read_answer(reader)
            return replace(answer, closed=await _closed(reader)) if await_close else answer
        finally:
            sending.cancel()
            writer.close()


async def _closed(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(5):
            return await reader.read(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


async def _write(writer: asyncio.StreamWriter, request: bytes) -> None:
    """The answer may come before all of it is sent, and the connection end."""
    try:
        writer.write(request)
        await writer.drain()
    except ConnectionError:
        pass


async def read_answer(reader: asyncio.StreamReader) -> RawAnswer:
    """Raises ConnectionError if the connection ends before a whole head."""
    status, headers = 100, list[tuple[str, str]]()
    while status < 200:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            raise ConnectionResetError("no answer") from error
        first, *lines = head.decode("latin-1").strip().split("\r\n")
        status = int(first.split(" ")[1])
        pairs = (line.partition(":") for line in lines)
        headers = [(name.lower(), value.strip()) for name, _, value in pairs]
    body, end = await _read_body(reader, dict(headers), status)
    return RawAnswer(status=status, headers=headers, body=body, end=end)


async def _read_body(
    reader: asyncio.StreamReader, headers: Mapping[str, str], status: int
) -> tuple[bytes, BodyEnd]:
    if status in (204, 304):
        return b"", BodyEnd.WHOLE
    body = bytearray()
    try:
        if headers.get("transfer-encoding") == "chunked":
            while size := int(await reader.readuntil(b"\r\n"), 16):
                await _read_into(body, reader, size)
                await reader.readexactly(2)
            await reader.readuntil(b"\r\n")
        elif "content-length" in headers:
            await _read_into(body, reader, int(headers["content-length"]))
        else:
            while piece := await reader.read(2**16):
                body += piece
            return bytes(body), BodyEnd.CLOSED
    except (asyncio.IncompleteReadError, ConnectionError):
        return bytes(body), BodyEnd.ABORTED
    return bytes(body), BodyEnd.WHOLE


async def _read_into(body: bytearray, reader: asyncio.StreamReader, size: int) -> None:
    """What is there when the connection ends stays in `body`."""
    while size:
        piece = await reader.read(min(size, 2**16))
        if not piece:
            raise asyncio.IncompleteReadError(bytes(body), None)
        body += piece
        size -= len(piece)
