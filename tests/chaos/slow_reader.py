"""A client that reads a little at a time from a narrow socket, until the connection ends.

Not aiohttp's: once its connection is lost it no longer gives out what it had received before.
"""

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

READ_BYTES = 4096
PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class Received:
    status: int
    body: bytes
    whole: bool
    """The body's own end was seen."""


async def post(url: str, value: dict[str, Any]) -> Received:
    """One request on a connection of its own. Raises OSError where there is no answer."""
    parts = urlsplit(url)
    body = json.dumps(value).encode()
    head = (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    loop = asyncio.get_running_loop()
    received = bytearray()
    with socket.socket() as sock:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, READ_BYTES)
        await loop.sock_connect(sock, (parts.hostname, parts.port))
        await loop.sock_sendall(sock, head.encode() + body)
        try:
            while data := await loop.sock_recv(sock, READ_BYTES):
                received += data
                await asyncio.sleep(PAUSE_S)
        except ConnectionResetError:
            pass  # whatever came before it was read
    return parsed(bytes(received))


def parsed(raw: bytes) -> Received:
    """Raises ConnectionError if there is no whole head."""
    head, found, rest = raw.partition(b"\r\n\r\n")
    if not found:
        raise ConnectionError("no answer")
    first, *fields = head.decode("latin-1").split("\r\n")
    status = int(first.split(" ")[1])
    headers = {name.lower(): value.strip() for name, _, value in (f.partition(":") for f in fields)}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body, whole = unchunked(rest)
        return Received(status, body, whole)
    return Received(status, rest, len(rest) == int(headers.get("content-length", "-1")))


def unchunked(rest: bytes) -> tuple[bytes, bool]:
    """The data of a chunked body as far as it goes, and whether its last chunk is there."""
    pieces: list[bytes] = []
    while True:
        size, found, rest = rest.partition(b"\r\n")
        if not found or not size:
            return b"".join(pieces), False
        length = int(size.partition(b";")[0], 16)
        if not length:
            return b"".join(pieces), rest.endswith(b"\r\n")
        pieces.append(rest[:length])
        rest = rest[length + 2 :]
