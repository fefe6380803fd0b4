"""Copying an upstream response to the client: whole events, bytes unchanged, endings judged.

A stream that ends early must look like an error to the official clients. Only two signals do: an
event with an `error` object, and a body that is aborted instead of ended. Both are sent, in this
order, and never `Connection: close`, with which Node takes a cut body for a whole one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from aiohttp import web
from multidict import CIMultiDict

from prefold.backends.errors import BackendError, UpstreamDisconnected
from prefold.proxy.errors import UpstreamFailed
from prefold.proxy.sse import EventSplitter, EventTooLong
from prefold.proxy.stream_meter import Ending, StreamMeter, is_usage_only

log = logging.getLogger(__name__)


class ClientGone(Exception):
    """The client's connection ended before its response did."""


class EventStream:
    """An upstream's SSE body as batches of whole events, metered on the way.

    `first()` before anything else: it waits for the first whole event, so that a backend which
    dies before it can still be replaced by another one.
    """

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        meter: StreamMeter,
        *,
        strip_usage: bool,
        clock: Callable[[], float],
        on_first_token: Callable[[], None],
    ) -> None:
        self._chunks = chunks
        self._meter = meter
        self._strip_usage = strip_usage
        self._clock = clock
        self._on_first_token = on_first_token
        self._splitter = EventSplitter()
        self._before_first = True
        self.batches = self._read()
        """Whole events, those of one read joined; raises BackendError on a body that is cut, goes
        silent, or holds an error in a form that clients overlook."""

    async def first(self) -> bytes:
        """The first events; raises BackendError if the body ends before one is whole."""
        async for batch in self.batches:
            if batch:
                return batch
        raise UpstreamDisconnected("the stream ended before its first event")

    async def _read(self) -> AsyncIterator[bytes]:
        async for chunk in self._chunks:
            try:
                events = self._splitter.feed(chunk)
            except EventTooLong as error:
                raise UpstreamDisconnected(str(error)) from error
            if events:
                yield b"".join(self._kept(events))
                if self._meter.hidden_error:
                    raise UpstreamDisconnected("an error event without an `error` object")
        last = self._splitter.finish()
        if last is not None:
            yield b"".join(self._kept([last]))

    def _kept(self, events: list[bytes]) -> Iterator[bytes]:
        now = self._clock()
        for event in events:
            chunk = self._meter.observe(event, now)
            if self._before_first and self._meter.token_times:
                self._before_first = False
                self._on_first_token()
            if not (self._strip_usage and is_usage_only(chunk)):
                yield event
            if self._meter.hidden_error:
                return  # a [DONE] behind it would make clients stop before they see ours


async def send_stream(
    request: web.Request,
    headers: CIMultiDict[str],
    first: bytes,
    stream: EventStream,
    meter: StreamMeter,
    write_s: float,
) -> tuple[web.StreamResponse, BackendError | None]:
    """Relay to the end; the failure, if that was no proper one. Raises ClientGone."""
    out = ClientStream(request, write_s)
    await out.begin(200, headers)
    await out.write(first)
    try:
        async for batch in stream.batches:
            if batch:
                await out.write(batch)
        if meter.ending is Ending.OPEN:
            raise UpstreamDisconnected("the stream ended without its terminal event")
    except BackendError as error:
        # What comes after the terminal event, a reset say, takes nothing away from the answer.
        if meter.ending is not Ending.COMPLETE:
            log.warning("stream cut: %s", error)
            failure = UpstreamFailed(
                "The backend's answer ended early.", code="upstream_disconnected"
            )
            await out.write(b"data: " + failure.body() + b"\n\n")
            out.abort()
            return out.response, error
    await out.end()
    return out.response, None


async def send_whole(
    request: web.Request, status: int, headers: CIMultiDict[str], body: bytes, write_s: float
) -> web.StreamResponse:
    """A body that is here already. Raises ClientGone."""
    out = ClientStream(request, write_s)
    headers["Content-Length"] = str(len(body))
    await out.begin(status, headers)
    await out.write(body)
    await out.end()
    return out.response


async def send_raw(
    request: web.Request,
    status: int,
    headers: CIMultiDict[str],
    chunks: AsyncIterator[bytes],
    write_s: float,
) -> tuple[web.StreamResponse, BackendError | None]:
    """Relay a body of unknown kind as it comes; aborted if the upstream's is cut."""
    out = ClientStream(request, write_s)
    await out.begin(status, headers)
    try:
        async for chunk in chunks:
            await out.write(chunk)
    except BackendError as error:
        out.abort()
        return out.response, error
    await out.end()
    return out.response, None


class ClientStream:
    """The response to one client. Raises ClientGone when nobody reads it, for `write_s` seconds or
    for good; aiohttp buffers 64 KiB and then waits."""

    def __init__(self, request: web.Request, write_s: float) -> None:
        self._request = request
        self._write_s = write_s

    async def begin(self, status: int, headers: CIMultiDict[str]) -> None:
        self.response = web.StreamResponse(status=status, headers=headers)
        self._request[STARTED] = True
        await self._guarded(self.response.prepare(self._request))

    async def write(self, data: bytes) -> None:
        transport = self._request.transport
        if transport is None:
            raise ClientGone
        writing = self.response.write(data)
        if transport.get_write_buffer_size() + len(data) < NEVER_WAITS:
            await _mapped(writing)
        else:
            await self._guarded(writing)

    async def end(self) -> None:
        await self._guarded(self.response.write_eof())

    def abort(self) -> None:
        """Close after what was written, without the end that would make it whole."""
        abort(self._request)

    async def _guarded(self, operation: Awaitable[object]) -> None:
        try:
            async with asyncio.timeout(self._write_s):
                await _mapped(operation)
        except TimeoutError as error:
            if self._request.transport is not None:
                self._request.transport.abort()  # what it does not read cannot be flushed
            raise ClientGone from error


async def _mapped(operation: Awaitable[object]) -> None:
    try:
        await operation
    except (ConnectionError, RuntimeError) as error:
        # aiohttp raises ClientConnectionResetError, and RuntimeError once the writer is closed.
        raise ClientGone from error


NEVER_WAITS = 32 * 1024
"""Bytes that a transport takes without making the writer wait (asyncio's mark is 64 KiB): no timer
is needed then, and one for each token would cost more than the rest of the writing."""


STARTED = web.RequestKey("started", bool)
"""Set on a request once its response has begun: an error can no longer become a status."""


def abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.close()
