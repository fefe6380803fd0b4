"""Copying an answer to the client: whole events, bytes unchanged, endings judged.

A stream that ends early must look like an error to the official clients. Only two signals do: an
event with an error, and a body that is aborted instead of ended. Both are sent, in this order, and
never `Connection: close`, with which Node takes a cut body for a whole one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable

from aiohttp import web
from multidict import CIMultiDict

from prefold.backends.errors import BackendError, UpstreamDisconnected
from prefold.proxy.errors import UpstreamFailed
from prefold.proxy.meter import Ending, Meter
from prefold.proxy.protocol import Protocol
from prefold.proxy.request_keys import STARTED

log = logging.getLogger(__name__)


class ClientGone(Exception):
    """The client's connection ended before its response did."""


async def send_events(
    out: ClientStream, first: bytes, batches: AsyncIterator[bytes], meter: Meter, protocol: Protocol
) -> BackendError | None:
    """Relay to the end; the failure, if that was no proper one. Raises ClientGone."""
    try:
        await out.write(first)
        async for batch in batches:
            if batch:
                await out.write(batch)
        if meter.ending is Ending.OPEN:
            raise UpstreamDisconnected("the stream ended without its terminal event")
    except BackendError as error:
        # What comes after the terminal event, a reset say, takes nothing away from the answer.
        if meter.ending is not Ending.COMPLETE:
            log.warning("stream cut: %s", error)
            told = UpstreamFailed("The backend's answer ended early.", code="upstream_disconnected")
            await out.write(protocol.cut(meter, told))
            out.abort()
            return error
    except asyncio.CancelledError:
        # Our own end, or a time limit; where it is the client that left, nobody reads this.
        if out.open and meter.ending is Ending.OPEN:
            told = UpstreamFailed("The answer was cut off.", code="cut_off")
            await out.write(protocol.cut(meter, told))
            out.abort()
        raise
    await out.end()
    return None


async def send_whole(out: ClientStream, body: bytes) -> None:
    """A body that is here already. Raises ClientGone."""
    if body:
        await out.write(body)
    await out.end()


async def send_raw(
    out: ClientStream, first: bytes, chunks: AsyncIterator[bytes]
) -> BackendError | None:
    """Relay a body of unknown kind as it comes; aborted if the upstream's is cut."""
    try:
        if first:
            await out.write(first)
        async for chunk in chunks:
            await out.write(chunk)
    except BackendError as error:
        out.abort()
        return error
    except asyncio.CancelledError:
        out.abort()
        raise
    await out.end()
    return None


class ClientStream:
    """The response to one client. Raises ClientGone when nobody reads it, for `write_s` seconds or
    for good; aiohttp buffers 64 KiB and then waits."""

    def __init__(self, request: web.Request, write_s: float) -> None:
        self._request = request
        self._write_s = write_s
        self.begun = False

    async def begin(self, status: int, headers: CIMultiDict[str]) -> None:
        self.response = web.StreamResponse(status=status, headers=headers)
        self._request[STARTED] = True
        self.begun = True
        await self._guarded(self.response.prepare(self._request))

    @property
    def open(self) -> bool:
        transport = self._request.transport
        return transport is not None and not transport.is_closing()

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


def abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.close()
