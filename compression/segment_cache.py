"""What is kept of texts that were compressed before, and those under way, once each.

Under keyed digests and as offsets: no text is stored. Bounded by bytes, the least used first.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec

from prefold.compression.worker.pool import Job, Unavailable

ENTRY_BYTES = 250
"""Of an entry besides its offsets, about."""
Spent = Callable[[float], None]
"""Is told of seconds of a compressor."""


class Kept(msgspec.Struct, frozen=True):
    """Which characters of a text remain. `spans`: start, end, start, end..."""

    spans: array[int]
    chars: int

    def of(self, text: str) -> str:
        spans = self.spans
        return "".join(
            [text[start:end] for start, end in zip(spans[::2], spans[1::2], strict=True)]
        )


def kept_of(spans: Sequence[int], length: int) -> Kept | None:
    """Of what a compressor answered for a text of `length` characters; None unless it is a proper
    part of it, in order: then the result is a subsequence by construction."""
    if len(spans) % 2 or not spans:
        return None
    last, chars = 0, 0
    for start, end in zip(spans[::2], spans[1::2], strict=True):
        if not last <= start < end <= length:
            return None
        chars += end - start
        last = end
    if chars >= length:
        spans = (0, length)  # it is best left alone, and that is worth knowing too
    return Kept(array("I", spans), chars)


class SegmentCache:
    """Mutable. `hits` and `misses` count look-ups."""

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._held: OrderedDict[bytes, Kept] = OrderedDict()
        self.bytes = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: bytes) -> Kept | None:
        kept = self._held.get(key)
        if kept is None:
            self.misses += 1
            return None
        self.hits += 1
        self._held.move_to_end(key)
        return kept

    def peek(self, key: bytes) -> Kept | None:
        """As `get`, and not counted."""
        return self._held.get(key)

    def put(self, key: bytes, kept: Kept) -> None:
        before = self._held.pop(key, None)
        if before is not None:
            self.bytes -= _size(before)
        self._held[key] = kept
        self.bytes += _size(kept)
        while self.bytes > self._max and self._held:
            _, oldest = self._held.popitem(last=False)
            self.bytes -= _size(oldest)


def _size(kept: Kept) -> int:
    return ENTRY_BYTES + kept.spans.itemsize * len(kept.spans)


class _Flight:
    __slots__ = ("job", "unattended", "waiters")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.waiters = 0
        self.unattended = False
        """It is to be done though nobody waits for it."""


class Flights:
    """Texts under way, each once however many requests hold it. What comes of them goes into the
    cache, also where nobody waits any more. For one event loop."""

    def __init__(
        self,
        cache: SegmentCache,
        submit: Callable[[str, float], Job],
        made: Callable[[bytes, Kept, int], None] | None = None,
    ) -> None:
        """`made` is told of each result that came, with the length of its text."""
        self._cache = cache
        self._submit = submit
        self._made = made
        self._flights: dict[bytes, _Flight] = {}
        self.shared = 0
        """Texts that were asked for while they were under way already."""

    def __len__(self) -> int:
        return len(self._flights)

    def __contains__(self, key: bytes) -> bool:
        """It is under way."""
        return key in self._flights

    def start(self, key: bytes, text: str, rate: float, spent: Spent | None = None) -> None:
        """For the next one who needs it; nothing happens where that cannot be."""
        try:
            self._flight(key, text, rate, spent).unattended = True
        except Unavailable:
            return

    async def wait(
        self,
        texts: Sequence[tuple[bytes, str]],
        rate: float,
        within_s: float,
        spent: Spent | None = None,
    ) -> bool:
        """Returns when all are in the cache, or cannot be, or the time is over: False then. What is
        left, or when the caller is cancelled, is given up unless somebody else waits for it.
        `spent` is told of the compressor's seconds for what was not under way before, when they are
        over."""
        flights = []
        try:
            for key, text in texts:
                try:
                    flight = self._flight(key, text, rate, spent)
                except Unavailable:
                    continue
                flight.waiters += 1
                flights.append(flight)
            spans = {flight.job.spans for flight in flights}
            if spans:
                _, spans = await asyncio.wait(spans, timeout=within_s)
            return not spans
        finally:
            for flight in flights:
                flight.waiters -= 1
                if not (flight.waiters or flight.unattended):
                    flight.job.spans.cancel()

    def _flight(self, key: bytes, text: str, rate: float, spent: Spent | None) -> _Flight:
        """Raises Unavailable."""
        flight = self._flights.get(key)
        if flight is not None and not flight.job.spans.done():
            self.shared += 1
            return flight
        made = self._flights[key] = _Flight(self._submit(text, rate))
        made.job.spent = spent
        length = len(text)

        def landed(spans: asyncio.Future[Sequence[int]]) -> None:
            if self._flights.get(key) is made:
                del self._flights[key]
            if spans.cancelled() or spans.exception() is not None:
                return
            kept = kept_of(spans.result(), length)
            if kept is not None:
                self._cache.put(key, kept)
                if self._made is not None:
                    self._made(key, kept, length)

        made.job.spans.add_done_callback(landed)
        return made
