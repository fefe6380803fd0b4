"""An upstream's SSE body as batches of whole events, metered on the way, bytes unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from prefold.backends.errors import BackendError, UpstreamDisconnected
from prefold.proxy.meter import Meter
from prefold.proxy.sse import EventSplitter, EventTooLong

AFTER_DONE_S = 1.0
"""How long the end of the body may follow the end of the answer: the client waits for it too."""


class EventStream:
    """`first()` before anything else: it waits for the first whole event, so that a backend which
    dies before it can still be replaced by another one."""

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        meter: Meter,
        *,
        clock: Callable[[], float],
        on_first_token: Callable[[], None],
    ) -> None:
        self._chunks = chunks
        self._meter = meter
        self._clock = clock
        self._on_first_token = on_first_token
        self._splitter = EventSplitter()
        self._before_first = True
        self.batches = self._read()
        """Whole events, those of one read joined; raises BackendError on a body that is cut, goes
        silent, or holds an error in a form that clients overlook. What follows [DONE] is left out,
        and not waited for."""

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
                yield self._kept(events)
                if self._meter.hidden_error:
                    raise UpstreamDisconnected("an error event without an `error` object")
                if self._meter.done:
                    await self._read_end()
                    return
        last = self._splitter.finish()
        if last is not None:
            yield self._kept([last])

    async def _read_end(self) -> None:
        """The body's end, with which the connection can be used again; more data ends it."""
        with suppress(BackendError, TimeoutError, StopAsyncIteration):
            async with asyncio.timeout(AFTER_DONE_S):
                await anext(self._chunks)

    def _kept(self, events: list[bytes]) -> bytes:
        now = self._clock()
        observe = self._meter.observe
        kept = [event for event in events if observe(event, now)]
        if self._before_first and self._meter.token_times:
            self._before_first = False
            self._on_first_token()
        return b"".join(kept)
