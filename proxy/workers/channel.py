"""One end of the stream between a worker and its parent: messages are gathered for a moment and
sent as one frame, so that a busy moment costs few system calls and no request waits for it.

What cannot be sent, because the other end does not read, is dropped and counted, never waited for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from prefold.proxy.workers.messages import Frame, FrameReader, Kind, Orders, Parent, Peers, frame

log = logging.getLogger(__name__)
Message = Peers | Parent | Orders
Pending = Message | Callable[[], Message]
"""Or what makes it, called when it is sent."""
GATHER_S = {Kind.PEERS: 0.002, Kind.PARENT: 0.05, Kind.ORDERS: 0.0}
"""Decisions of other workers wait for the first, nothing for the second."""
HIGH_BYTES = 16 * 1024 * 1024
"""Unsent, from which on messages are dropped."""


class Channel(asyncio.Protocol):
    def __init__(
        self,
        *,
        on_frame: Callable[[Frame], None],
        on_recovery: Callable[[], None],
        high_bytes: int = HIGH_BYTES,
    ) -> None:
        """`on_recovery` is called when the other end reads again after something was dropped."""
        self.dropped = dict.fromkeys(Kind, 0)
        """Messages, by kind."""
        self.closed = asyncio.get_running_loop().create_future()
        self._high_bytes = high_bytes
        self._on_frame = on_frame
        self._on_recovery = on_recovery
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[Kind, list[Pending]] = {kind: [] for kind in Kind}
        self._full = False
        self._lossy = False

    def put(self, kind: Kind, message: Pending) -> bool:
        """False: it was dropped."""
        if self._full or self.closed.done():
            self._drop(kind, 1)
            return False
        waiting = self._waiting[kind]
        waiting.append(message)
        if len(waiting) == 1:
            asyncio.get_running_loop().call_later(GATHER_S[kind], self._flush, kind)
        return True

    def pass_on(self, made: Frame) -> None:
        """At once, and after all of its kind that was put before."""
        self._flush(made.kind)
        if self._full or self._transport is None or self.closed.done():
            self._drop(made.kind, 1)
        else:
            self._transport.write(made.encoded())

    def send(self, kind: Kind, messages: Sequence[Message]) -> None:
        self.pass_on(frame(kind, 0, messages))

    def _flush(self, kind: Kind) -> None:
        waiting = self._waiting[kind]
        if not waiting:
            return
        self._waiting[kind] = []
        if self._transport is None or self.closed.done():
            self._drop(kind, len(waiting))
        else:
            messages = [one() if callable(one) else one for one in waiting]
            self._transport.write(frame(kind, 0, messages).encoded())

    def close(self) -> None:
        """After what was put has been written."""
        for kind in Kind:
            self._flush(kind)
        if self._transport is not None:
            self._transport.close()

    def _drop(self, kind: Kind, messages: int) -> None:
        self.dropped[kind] += messages
        self._lossy = True

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # uvloop's is no subclass of it
        assert self._transport is not None
        self._transport.set_write_buffer_limits(self._high_bytes, self._high_bytes // 4)

    def data_received(self, data: bytes) -> None:
        try:
            for one in self._reader.feed(data):
                self._on_frame(one)
        except (ValueError, msgspec.MsgspecError) as error:
            log.error("the other end cannot be understood: %s", type(error).__name__)
            if self._transport is not None:
                self._transport.abort()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        if self._lossy:
            self._lossy = False
            self._on_recovery()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
