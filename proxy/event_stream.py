"""An upstream's events on their way to the client: whole, metered, bytes unchanged, in the very
callback that reads them.

A stream that ends early must look like an error to the official clients. Only two signals do: an
event with an error, and a body that is aborted instead of ended. Both are sent, in this order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from prefold.backends.errors import BackendError, UpstreamDisconnected
from prefold.backends.http1 import Upstream
from prefold.proxy.errors import UpstreamFailed
from prefold.proxy.http.answer import Answer, ClientGone
from prefold.proxy.meter import Ending, Meter
from prefold.proxy.protocol import Protocol
from prefold.proxy.sse import EventSplitter, EventTooLong

log = logging.getLogger(__name__)

HIDDEN = "an error event without an `error` object"
HELD_BYTES = 256 * 1024
"""Events that may wait for the client's answer to begin."""


class EventStream:
    """The sink of a body. `first` before anything else: it waits for the first whole event, so that
    a backend which dies before it can still be replaced by another one. Then `relay`."""

    def __init__(
        self,
        upstream: Upstream,
        meter: Meter,
        *,
        clock: Callable[[], float],
        on_first_token: Callable[[], None],
    ) -> None:
        self._upstream = upstream
        self._meter = meter
        self._clock = clock
        self._on_first_token = on_first_token
        self._splitter = EventSplitter()
        self._before_first = True
        self._held = b""
        self._out: Answer | None = None
        self._over = False
        self._failure: BackendError | None = None
        self._changed: asyncio.Future[None] | None = None
        self._write_s = 0.0
        self._stalled: asyncio.TimerHandle | None = None
        upstream.to(self)

    @property
    def held(self) -> bytes:
        """Whole events that came before `relay`."""
        return self._held

    # the upstream's side

    def data(self, piece: bytes) -> None:
        if self._over:
            return
        try:
            events = self._splitter.feed(piece)
        except EventTooLong as error:
            self._end(UpstreamDisconnected(str(error)))
            return
        if events:
            self._pass(self._kept(events))
        if self._meter.hidden_error:
            self._end(UpstreamDisconnected(HIDDEN))
        elif self._meter.done:
            self._end(None)

    def end(self) -> None:
        if self._over:
            return
        self._pass_last()
        if self._meter.hidden_error:
            self._end(UpstreamDisconnected(HIDDEN))
        elif self._meter.ending is Ending.OPEN:
            self._end(UpstreamDisconnected("the stream ended without its terminal event"))
        else:
            self._end(None)

    def failed(self, error: BackendError) -> None:
        self._pass_last()
        # What comes after the terminal event, a reset say, takes nothing away from the answer.
        whole = self._meter.done or self._meter.ending is Ending.COMPLETE
        self._end(None if whole else error)

    def _pass_last(self) -> None:
        """An event whose blank line was a lone CR: only now is it known to be whole."""
        last = None if self._over else self._splitter.finish()
        if last is not None:
            self._pass(self._kept([last]))

    def _kept(self, events: list[bytes]) -> bytes:
        now = self._clock()
        observe = self._meter.observe
        kept = [event for event in events if observe(event, now)]
        if self._before_first and self._meter.token_times:
            self._before_first = False
            self._on_first_token()
        return kept[0] if len(kept) == 1 else b"".join(kept)

    def _pass(self, data: bytes) -> None:
        out = self._out
        if not data:
            return
        if out is None:
            self._held += data
            if len(self._held) > HELD_BYTES:
                self._upstream.pause()
            self._wake()
        elif not out.write(data):
            self._wait_for_client(out)

    def _end(self, failure: BackendError | None) -> None:
        if self._over:
            return
        self._over = True
        self._failure = failure
        self._wake()

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    # the client's side

    def _wait_for_client(self, out: Answer) -> None:
        """It has to take what was written before more is read for it."""
        self._upstream.pause()
        if self._stalled is None:
            loop = asyncio.get_running_loop()
            self._stalled = loop.call_later(self._write_s, out.reset)
            out.when_drained(self._go_on)

    def _go_on(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        self._upstream.resume()

    async def _change(self) -> None:
        self._changed = asyncio.get_running_loop().create_future()
        try:
            await self._changed
        finally:
            self._changed = None

    async def first(self) -> None:
        """Until the first event is here; raises BackendError if the body ends before that."""
        while not self._held:
            if self._over:
                raise self._failure or UpstreamDisconnected("a stream without any event")
            await self._change()

    async def relay(self, out: Answer, protocol: Protocol, write_s: float) -> BackendError | None:
        """All events to `out`, which has begun; the failure, if the end was no proper one. Raises
        ClientGone where the client left, or did not read for `write_s` seconds."""
        self._out, self._write_s = out, write_s
        held, self._held = self._held, b""
        try:
            if not out.write(held):
                self._wait_for_client(out)
            elif not self._over:
                self._upstream.resume()
            while not self._over:
                await self._change()
        except asyncio.CancelledError:
            # Our own end, or a time limit; where it is the client that left, nobody reads this.
            if out.open and self._meter.ending is Ending.OPEN:
                self._cut(out, protocol, "The answer was cut off.", "cut_off")
            raise
        finally:
            self._over = True
            if self._stalled is not None:
                self._stalled.cancel()
        if self._failure is not None:
            log.warning("stream cut: %s", self._failure)
            self._cut(out, protocol, "The backend's answer ended early.", "upstream_disconnected")
            return self._failure
        out.end()
        if out.waiting:
            await out.drained(write_s)
        if not out.open:
            raise ClientGone
        return None

    def _cut(self, out: Answer, protocol: Protocol, message: str, code: str) -> None:
        if out.open:
            out.write(protocol.cut(self._meter, UpstreamFailed(message, code=code)))
            out.abort()
