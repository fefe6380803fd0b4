"""Copying an answer to the client: whole events, bytes unchanged, endings judged.

A stream that ends early must look like an error to the official clients. Only two signals do: an
event with an error, and a body that is aborted instead of ended. Both are sent, in this order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

from prefold.backends.errors import BackendError, UpstreamDisconnected
from prefold.proxy.errors import UpstreamFailed
from prefold.proxy.http.answer import Answer
from prefold.proxy.meter import Ending, Meter
from prefold.proxy.protocol import Protocol

log = logging.getLogger(__name__)


async def send_events(
    out: Answer,
    first: bytes,
    batches: AsyncIterator[bytes],
    meter: Meter,
    protocol: Protocol,
    write_s: float,
) -> BackendError | None:
    """Relay to the end; the failure, if that was no proper one. Raises ClientGone."""
    try:
        await send(out, first, write_s)
        async for batch in batches:
            if batch:
                await send(out, batch, write_s)
        if meter.ending is Ending.OPEN:
            raise UpstreamDisconnected("the stream ended without its terminal event")
    except BackendError as error:
        # What comes after the terminal event, a reset say, takes nothing away from the answer.
        if meter.ending is not Ending.COMPLETE:
            log.warning("stream cut: %s", error)
            told = UpstreamFailed("The backend's answer ended early.", code="upstream_disconnected")
            out.write(protocol.cut(meter, told))
            out.abort()
            return error
    except asyncio.CancelledError:
        # Our own end, or a time limit; where it is the client that left, nobody reads this.
        if out.open and meter.ending is Ending.OPEN:
            told = UpstreamFailed("The answer was cut off.", code="cut_off")
            out.write(protocol.cut(meter, told))
            out.abort()
        raise
    await finish(out, b"", write_s)
    return None


async def send_raw(
    out: Answer, first: bytes, chunks: AsyncIterator[bytes], write_s: float
) -> BackendError | None:
    """Relay a body of unknown kind as it comes; aborted if the upstream's is cut."""
    try:
        await send(out, first, write_s)
        async for chunk in chunks:
            await send(out, chunk, write_s)
    except BackendError as error:
        out.abort()
        return error
    except asyncio.CancelledError:
        out.abort()
        raise
    await finish(out, b"", write_s)
    return None


async def send(out: Answer, data: bytes, write_s: float) -> None:
    """Raises ClientGone where the client has left, or does not read for `write_s` seconds."""
    if not out.write(data) or not out.open:
        await out.drained(write_s)


async def finish(out: Answer, last: bytes, write_s: float) -> None:
    """The body ends with `last`, and most of it was taken. Raises ClientGone."""
    out.end(last)
    if out.waiting:
        await out.drained(write_s)
