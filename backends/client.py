"""HTTP to LLM servers: connections that are kept, and requests that are written.

One connection carries one exchange at a time; how many there are is bounded by leases, not here.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec

from prefold.backends.error_mapping import mapped_errors
from prefold.backends.errors import ConnectFailed, UpstreamDisconnected
from prefold.backends.http1 import Connection, Limits, Upstream

# llama.cpp's HTTP library and uvicorn both close an idle connection after 5 s.
KEEPALIVE_S = 4.0
REPLAY_WITHIN_S = 0.2
MAX_PROBE_BYTES = 16 * 1024 * 1024
JOIN_BELOW = 64 * 1024


@dataclass(frozen=True, slots=True)
class Origin:
    """Where connections go, and so which ones may be used for what."""

    host: str
    port: int
    ssl: ssl.SSLContext | None

    @property
    def authority(self) -> str:
        """As in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.ssl is not None else 80
        return host if self.port == usual else f"{host}:{self.port}"


class Client:
    """One pool for all backends of this process. An async context manager."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._origins: dict[tuple[str, ssl.SSLContext | None], Origin] = {}
        """By where URLs begin: those of the fleet."""
        self._idle: dict[Origin, deque[Connection]] = {}
        self._open: set[Connection] = set()
        self._default_ssl: ssl.SSLContext | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for connection in list(self._open):
            connection.transport.abort()
        await asyncio.sleep(0)  # for the transports to close

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | AsyncIterator[bytes] = b"",
        ssl: ssl.SSLContext | None = None,
    ) -> Upstream:
        """The response head; raises ConnectFailed, UpstreamTimeout or UpstreamDisconnected, and
        what a `body` that is an iterator raises itself. Without `ssl`, an https server's
        certificate is checked against the system's authorities.

        A kept-alive connection may be closed by the server just as we write to it. The request is
        then sent once more on a fresh one: only if nothing came back, and only at once, since a
        server that worked on it for a while and then died may die of it again.
        """
        origin, target = self._place(url, ssl)
        head = _head(method, target, origin, headers, body)
        # An upload goes once, so it does not go over a connection that may be closing.
        connection = self._take_idle(origin) if isinstance(body, bytes) else None
        if connection is not None:
            began = self._loop.time()
            upstream = self._exchange(connection, method)
            try:
                return await self._sent(upstream, connection, head, body)
            except UpstreamDisconnected:
                late = self._loop.time() - began > REPLAY_WITHIN_S
                if late or not upstream.silent or not connection.lost:
                    raise
        connection = await self._connect(origin)
        return await self._sent(self._exchange(connection, method), connection, head, body)

    def _exchange(self, connection: Connection, method: str) -> Upstream:
        return Upstream(connection, self._limits, head_only=method == "HEAD")

    async def _sent(
        self,
        upstream: Upstream,
        connection: Connection,
        head: bytes,
        body: bytes | AsyncIterator[bytes],
    ) -> Upstream:
        try:
            if isinstance(body, bytes):
                if len(body) < JOIN_BELOW:
                    connection.transport.write(head + body)
                else:
                    connection.transport.writelines((head, body))
                upstream.sent = True
                await upstream.answered()
            else:
                await _uploaded(upstream, connection, head, body)
        except BaseException:
            upstream.close()
            raise
        return upstream

    async def fetch(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        json: Any = None,
        ssl: ssl.SSLContext | None = None,
    ) -> tuple[int, bytes]:
        """A small exchange of our own (probes): status and body, within `timeout_s`."""
        body = b"" if json is None else msgspec.json.encode(json)
        sent = dict(headers)
        if body:
            sent["Content-Type"] = "application/json"
        with mapped_errors():
            async with asyncio.timeout(timeout_s):
                upstream = await self.send(method, url, headers=sent, body=body, ssl=ssl)
                try:
                    return upstream.status, await upstream.read(MAX_PROBE_BYTES)
                finally:
                    upstream.close()

    def _place(self, url: str, context: ssl.SSLContext | None) -> tuple[Origin, str]:
        end = url.find("/", 8)  # behind http:// or https://
        base, target = (url, "/") if end < 0 else (url[:end], url[end:])
        origin = self._origins.get((base, context))
        if origin is None:
            origin = self._origins[base, context] = self._origin(base, context)
        return origin, target

    def _origin(self, base: str, context: ssl.SSLContext | None) -> Origin:
        parts = urlsplit(base)
        secure = parts.scheme == "https"
        if secure and context is None:
            context = self._default_ssl = self._default_ssl or ssl.create_default_context()
        port = parts.port or (443 if secure else 80)
        return Origin(parts.hostname or "", port, context if secure else None)

    async def _connect(self, origin: Origin) -> Connection:
        def made() -> Connection:
            return Connection(
                on_idle=lambda connection: self._keep(origin, connection),
                on_unused=lambda connection: self._let_go(origin, connection),
                on_lost=self._lost,
            )

        with mapped_errors():
            try:
                async with asyncio.timeout(self._limits.connect_s):
                    _, connection = await self._loop.create_connection(
                        made,
                        origin.host,
                        origin.port,
                        ssl=origin.ssl,
                        server_hostname=origin.host if origin.ssl is not None else None,
                    )
            except TimeoutError as error:
                raise ConnectFailed("no connection in time") from error
        self._open.add(connection)
        return connection

    def _take_idle(self, origin: Origin) -> Connection | None:
        """The one that was used last, which is the least likely to be closed by its server."""
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if not connection.transport.is_closing():
                return connection
        return None

    def _keep(self, origin: Origin, connection: Connection) -> None:
        self._idle.setdefault(origin, deque()).append(connection)
        connection.expect_by(self._loop.time() + KEEPALIVE_S)

    def _let_go(self, origin: Origin, connection: Connection) -> None:
        idle = self._idle[origin]
        idle.remove(connection)
        if not idle:
            del self._idle[origin]
        connection.transport.close()

    def _lost(self, connection: Connection) -> None:
        self._open.discard(connection)


def _head(
    method: str,
    target: str,
    origin: Origin,
    headers: Mapping[str, str],
    body: bytes | AsyncIterator[bytes],
) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {origin.authority}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if not isinstance(body, bytes):
        lines.append("Transfer-Encoding: chunked")
    elif body or method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _uploaded(
    upstream: Upstream, connection: Connection, head: bytes, body: AsyncIterator[bytes]
) -> None:
    """The body goes as it comes, until the answer is here: what follows would not be read. Raises
    what `body` raises, and BackendError."""
    writing = asyncio.ensure_future(_write_chunks(upstream, connection, head, body))
    answered = asyncio.ensure_future(upstream.answered())
    try:
        await asyncio.wait((writing, answered), return_when=asyncio.FIRST_COMPLETED)
        if writing.done():
            writing.result()
        await answered
    finally:
        for task in (writing, answered):
            task.cancel()
        await asyncio.gather(writing, answered, return_exceptions=True)


async def _write_chunks(
    upstream: Upstream, connection: Connection, head: bytes, body: AsyncIterator[bytes]
) -> None:
    transport = connection.transport
    transport.write(head)
    async for piece in body:
        if connection.lost:
            return  # the exchange has been told
        if piece:
            transport.writelines((b"%x\r\n" % len(piece), piece, b"\r\n"))
            await connection.drained()
    transport.write(b"0\r\n\r\n")
    upstream.sent = True
