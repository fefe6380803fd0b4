"""HTTP to LLM servers: the only user of aiohttp's client, with connections.py and error_mapping.py.

aiohttp's defaults are wrong for a proxy; each one changed below has its reason beside it.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import aiohttp
import msgspec
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from prefold.backends.connections import Connections
from prefold.backends.decoding import Decoder
from prefold.backends.error_mapping import mapped_errors
from prefold.backends.errors import BackendError, UpstreamDisconnected

# llama.cpp's HTTP library and uvicorn both close an idle connection after 5 s.
KEEPALIVE_S = 4.0
MAX_FIELD_BYTES = 64 * 1024
REPLAY_WITHIN_S = 0.2
MAX_PROBE_BYTES = 16 * 1024 * 1024
# Every header that aiohttp would add by itself; what goes upstream is what the caller gave.
NO_AUTO_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds. `first_byte_s` is the wait for the response head, and again for the first byte of
    its body (some engines send the head before the prefill), `idle_s` that between later reads."""

    connect_s: float = 5.0
    first_byte_s: float = 600.0
    idle_s: float = 120.0


class Upstream:
    """A response whose head has arrived. `close()` in every case; it aborts what is not read."""

    def __init__(self, response: aiohttp.ClientResponse, limits: Limits) -> None:
        """Raises UpstreamDisconnected for an answer that no request of ours allows."""
        if response.status < 200:
            raise UpstreamDisconnected("an upgrade that was not asked for")
        self._response = response
        self._limits = limits
        self._decoder = _decoder(response.headers)
        self.status = response.status
        self.headers = response.headers if self._decoder is None else _decoded(response.headers)
        """Those of the body that `chunks` gives: decoded, it has neither coding nor length."""

    async def chunks(self) -> AsyncIterator[bytes]:
        """Body bytes as they arrive; raises BackendError when the body is cut or goes silent."""
        read = self._response.content.readany
        decoder = self._decoder
        patience = self._limits.first_byte_s
        with mapped_errors():
            while True:
                async with asyncio.timeout(patience):
                    chunk = await read()
                if not chunk:
                    break
                if decoder is None:
                    yield chunk
                else:
                    for decoded in decoder.steps(chunk):
                        yield decoded
                patience = self._limits.idle_s
            if decoder is not None:
                decoder.finish()

    async def read(self, max_bytes: int) -> bytes:
        """The whole body; raises UpstreamDisconnected if it is larger."""
        pieces, size = [], 0
        async for chunk in self.chunks():
            pieces.append(chunk)
            size += len(chunk)
            if size > max_bytes:
                raise UpstreamDisconnected(f"a body of more than {max_bytes} bytes")
        return b"".join(pieces)

    def close(self) -> None:
        """Back to the pool when the body was read to its end, closed (so aborted) otherwise."""
        if self._response.content.is_eof() and self._response.content.exception() is None:
            self._response.release()
        else:
            self._response.close()


class Client:
    """One connection pool for all backends of this process. An async context manager."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._session: aiohttp.ClientSession | None = None
        self._connections: Connections | None = None

    async def __aenter__(self) -> Self:
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_note_reuse)
        trace.on_connection_create_start.append(_note_new)
        self._connections = Connections(keepalive_s=KEEPALIVE_S, dns_cache_s=30)
        self._session = aiohttp.ClientSession(
            connector=self._connections,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._limits.connect_s),
            cookie_jar=aiohttp.DummyCookieJar(),  # a shared jar would mix tenants
            auto_decompress=False,  # bytes and Content-Encoding pass together
            skip_auto_headers=NO_AUTO_HEADERS,
            trust_env=False,
            max_field_size=MAX_FIELD_BYTES,
            max_line_size=MAX_FIELD_BYTES,
            trace_configs=[trace],
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

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
        then sent once more on a fresh one; only at once, since a server that worked on it for a
        while and then died may die of it again.
        """
        sending = _Sending(method, URL(url, encoded=True), headers, ssl)
        if not isinstance(body, bytes):
            return await self._send_once(sending, body)
        sent = time.monotonic()
        try:
            return await self._send(sending, body)
        except UpstreamDisconnected as error:
            lost = isinstance(
                error.__cause__,
                aiohttp.ServerDisconnectedError | aiohttp.ClientOSError | ConnectionError,
            )
            if not (lost and sending.reused and time.monotonic() - sent < REPLAY_WITHIN_S):
                raise
        return await self._send(sending, body)

    async def _send_once(self, sending: _Sending, body: AsyncIterator[bytes]) -> Upstream:
        upload = _Upload(body)
        try:
            return await self._send(sending, upload.pieces())
        except BackendError:
            if upload.failure is not None:
                raise upload.failure from None
            raise

    async def _send(self, sending: _Sending, body: bytes | AsyncIterator[bytes]) -> Upstream:
        assert self._session is not None, "the client is used outside `async with`"
        assert self._connections is not None
        with mapped_errors():
            async with asyncio.timeout(self._limits.first_byte_s):
                response = await self._session.request(
                    sending.method,
                    sending.url,
                    data=body or None,
                    headers=sending.headers,
                    allow_redirects=False,  # a redirect would carry the prompt elsewhere
                    ssl=sending.ssl if sending.ssl is not None else True,
                    trace_request_ctx=sending,
                )
        self._connections.watch(response)
        try:
            return Upstream(response, self._limits)
        except UpstreamDisconnected:
            response.close()
            raise

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


@dataclass(slots=True)
class _Sending:
    method: str
    url: URL
    headers: Mapping[str, str]
    ssl: ssl.SSLContext | None
    reused: bool = False
    """The last attempt went over a connection that had carried another request."""


class _Upload:
    """A body from elsewhere: when it fails, that says nothing of the backend."""

    def __init__(self, body: AsyncIterator[bytes]) -> None:
        self._body = body
        self.failure: Exception | None = None

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._body:
                yield piece
        except Exception as error:
            self.failure = error
            raise


def _decoder(headers: CIMultiDictProxy[str]) -> Decoder | None:
    if headers.get("Transfer-Encoding", "chunked").lower() != "chunked":
        raise UpstreamDisconnected("a coding that was not asked for")
    coding = ",".join(headers.getall("Content-Encoding", ())).strip().lower()
    return None if coding in ("", "identity") else Decoder(coding)


def _decoded(headers: CIMultiDictProxy[str]) -> CIMultiDictProxy[str]:
    kept = CIMultiDict(headers)
    for name in ("Content-Encoding", "Content-Length"):
        kept.popall(name, None)
    return CIMultiDictProxy(kept)


async def _note_reuse(
    session: aiohttp.ClientSession,
    context: SimpleNamespace,
    params: aiohttp.TraceConnectionReuseconnParams,
) -> None:
    context.trace_request_ctx.reused = True


async def _note_new(
    session: aiohttp.ClientSession,
    context: SimpleNamespace,
    params: aiohttp.TraceConnectionCreateStartParams,
) -> None:
    context.trace_request_ctx.reused = False
