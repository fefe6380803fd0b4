"""HTTP to LLM servers: the only user of aiohttp's client. Foreign errors become ours here.

aiohttp's defaults are wrong for a proxy; each one changed below has its reason beside it.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import aiohttp
import msgspec
from multidict import CIMultiDictProxy
from yarl import URL

from prefold.backends.errors import (
    BackendError,
    ConnectFailed,
    ConnectRefused,
    LocalFault,
    UpstreamDisconnected,
    UpstreamTimeout,
)

# llama.cpp's HTTP library and uvicorn both close an idle connection after 5 s.
KEEPALIVE_S = 4.0
MAX_FIELD_BYTES = 64 * 1024
REPLAY_WITHIN_S = 0.2
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
        self._response = response
        self._limits = limits
        self.status = response.status
        self.headers: CIMultiDictProxy[str] = response.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """Body bytes as they arrive; raises BackendError when the body is cut or goes silent."""
        read = self._response.content.readany
        patience = self._limits.first_byte_s
        with _mapped_errors():
            while True:
                async with asyncio.timeout(patience):
                    chunk = await read()
                if not chunk:
                    return
                yield chunk
                patience = self._limits.idle_s

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

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

    async def __aenter__(self) -> Self:
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_note_reuse)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,  # in-flight requests are bounded by leases, not by hidden queueing
                keepalive_timeout=KEEPALIVE_S,
                ttl_dns_cache=30,
            ),
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
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> Upstream:
        """The response head; raises ConnectFailed, UpstreamTimeout or UpstreamDisconnected.

        A kept-alive connection may be closed by the server just as we write to it. The request is
        then sent once more on a fresh one; only at once, since a server that worked on it for a
        while and then died may die of it again.
        """
        reused = SimpleNamespace(connection=False)
        sent = time.monotonic()
        try:
            return await self._send(method, url, headers, body, reused)
        except UpstreamDisconnected as error:
            lost = isinstance(
                error.__cause__,
                aiohttp.ServerDisconnectedError | aiohttp.ClientOSError | ConnectionError,
            )
            if not (lost and reused.connection and time.monotonic() - sent < REPLAY_WITHIN_S):
                raise
        return await self._send(method, url, headers, body, SimpleNamespace(connection=False))

    async def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        reused: SimpleNamespace,
    ) -> Upstream:
        assert self._session is not None, "the client is used outside `async with`"
        with _mapped_errors():
            async with asyncio.timeout(self._limits.first_byte_s):
                response = await self._session.request(
                    method,
                    URL(url, encoded=True),
                    data=body or None,
                    headers=headers,
                    allow_redirects=False,  # a redirect would carry the prompt elsewhere
                    trace_request_ctx=reused,
                )
        return Upstream(response, self._limits)

    async def fetch(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        json: Any = None,
    ) -> tuple[int, bytes]:
        """A small exchange of our own (probes): status and body, within `timeout_s`."""
        body = b"" if json is None else msgspec.json.encode(json)
        sent = dict(headers)
        if body:
            sent["Content-Type"] = "application/json"
        with _mapped_errors():
            async with asyncio.timeout(timeout_s):
                upstream = await self.send(method, url, headers=sent, body=body)
                try:
                    return upstream.status, await upstream.read()
                finally:
                    upstream.close()


REFUSED = frozenset(
    (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)
)
OURS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL))


def _connect_error(number: int | None) -> type[BackendError]:
    if number in REFUSED:
        return ConnectRefused
    return LocalFault if number in OURS else ConnectFailed


async def _note_reuse(
    session: aiohttp.ClientSession,
    context: SimpleNamespace,
    params: aiohttp.TraceConnectionReuseconnParams,
) -> None:
    context.trace_request_ctx.connection = True


@contextmanager
def _mapped_errors() -> Iterator[None]:
    try:
        yield
    except BackendError:
        raise
    except aiohttp.ClientConnectorError as error:
        raise _connect_error(error.errno)(type(error).__name__) from error
    except aiohttp.ConnectionTimeoutError as error:
        raise ConnectFailed(type(error).__name__) from error
    except TimeoutError as error:
        raise UpstreamTimeout("no bytes from the backend in time") from error
    except (aiohttp.ClientError, ConnectionError, ValueError) as error:
        # ValueError: aiohttp's for a response head it cannot read.
        raise UpstreamDisconnected(type(error).__name__) from error
