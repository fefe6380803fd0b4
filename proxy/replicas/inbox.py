"""What is read from Redis: opened, put in order by its sender, and handed on. No I/O."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from prefold.proxy.replicas.messages import OtherVersion, Stream, Told, decode
from prefold.proxy.replicas.seal import Seal, Unreadable

log = logging.getLogger(__name__)
FORGET_S = 60.0
"""A replica that says nothing for so long, while others or Redis itself can be heard, has ended."""
DEAF_S = 3.0
"""Reads come at least every second, so in a longer time nobody could be heard."""
FIRST_SOURCE = 1 << 31
"""Above the numbers that workers of this machine have."""


class Receiver(Protocol):
    """Who believes what others tell. Sources are numbers that no other one ever had."""

    def heard(self, source: int, messages: Sequence[Told], now: float) -> None:
        """In the order in which they were told."""

    def lost(self, source: int, now: float) -> None:
        """Something it told was not received, or it has ended: what it had under way it will not
        be heard to finish."""


class _Source:
    __slots__ = ("heard", "last", "number")

    def __init__(self, number: int, now: float) -> None:
        self.number = number
        self.heard = now
        self.last: dict[Stream, int] = {}


class Inbox:
    """Mutable."""

    def __init__(self, seal: Seal, receiver: Receiver, now: float) -> None:
        self.received = 0
        """Messages of others."""
        self.refused = 0
        """Entries that could not be read."""
        self.lag_s: float | None = None
        """How long the last entry of ours took to come back: the way of what others tell, too."""
        self._seal = seal
        self._receiver = receiver
        self._sources: dict[bytes, _Source] = {}
        self._numbers = FIRST_SOURCE
        self._sent: deque[tuple[Stream, int, float]] = deque(maxlen=1024)
        self._warned = False
        self._alive = now

    def sent(self, stream: Stream, number: int, now: float) -> None:
        """We are writing this one."""
        self._sent.append((stream, number, now))

    def take(self, stream: Stream, content: bytes, now: float) -> None:
        """One entry of the stream, whoever wrote it."""
        try:
            raw, number, plain = self._seal.open(stream, content)
            if raw == self._seal.source:
                self._own(stream, number, now)
                return
            messages = decode(plain)
        except (Unreadable, OtherVersion) as error:
            self._refuse(error)
            return
        source = self._sources.get(raw)
        if source is None:
            self._numbers += 1
            source = self._sources[raw] = _Source(self._numbers, now)
        source.heard = now
        last = source.last.get(stream)
        if last is not None and number <= last:
            return  # written twice: the answer to the first time did not come in time
        source.last[stream] = number
        if last is not None and number > last + 1 and stream is Stream.DELTAS:
            self._receiver.lost(source.number, now)
        self.received += len(messages)
        self._receiver.heard(source.number, messages, now)

    def alive(self, now: float) -> None:
        """Redis was read just now, be there something or nothing. Who was silent for long, while
        it could be heard, is forgotten."""
        deaf_s, self._alive = now - self._alive, now
        if deaf_s > DEAF_S:
            for source in self._sources.values():
                source.heard += deaf_s
        for raw, source in list(self._sources.items()):
            if now - source.heard > FORGET_S:
                del self._sources[raw]
                self._receiver.lost(source.number, now)

    def _own(self, stream: Stream, number: int, now: float) -> None:
        while self._sent:
            of, sent, when = self._sent[0]
            if of is stream and sent > number:
                return
            self._sent.popleft()
            if of is stream and sent == number:
                self.lag_s = now - when
                return

    def _refuse(self, error: Exception) -> None:
        self.refused += 1
        if not self._warned:
            self._warned = True
            why = (
                "a replica of another version writes there"
                if isinstance(error, OtherVersion)
                else "some of it was written under another routing.secret, or changed"
            )
            log.error("what is in Redis cannot all be read: %s", why)
