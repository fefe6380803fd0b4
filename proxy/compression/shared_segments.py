"""What other processes compressed, asked of Redis, and what this one did, told to it.

A request waits here for a moment at most, and not at all while Redis does not work; writing is
behind it. One task and one connection: what many requests ask for at once is one round trip.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import islice

from prefold.compression.segment_cache import Kept, SegmentCache
from prefold.proxy.compression.sealed_kept import MAX_BYTES, SealedKept
from prefold.proxy.compression.write_budget import WriteBudget
from prefold.proxy.replicas.breaker import Breaker
from prefold.proxy.replicas.seal import Unreadable
from prefold.proxy.replicas.store import StoreFailed
from prefold.proxy.replicas.values import Values

log = logging.getLogger(__name__)
ASKED_AT_ONCE = WRITTEN_AT_ONCE = 32
"""Keys of one round trip: what requests wait for comes between two batches of what is written."""
MAX_ASKED = 4096
MAX_UNWRITTEN = 1024
"""Texts that wait here."""
TRIAL = bytes(16)
"""A key under which nothing is ever written."""
SLICE_S = 0.002
"""What is opened or sealed without a break; requests come before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRules:
    """`wait_s`: of one request. `max_bytes` of ours that are alive there, each for `ttl_s`."""

    wait_s: float
    max_bytes: int
    ttl_s: float


@dataclass(slots=True)
class ShareCounts:
    """Texts, by what came of asking for them, and of telling of them. Mutable."""

    hits: int = 0
    misses: int = 0
    late: int = 0
    """Not known in time; where it comes later, it is there for the next request."""
    unasked: int = 0
    """Redis did not work, or was busy with others for too long."""
    refused: int = 0
    """What was found could not be read: another secret, another version, or changed."""
    written: int = 0
    unwritten: int = 0
    """Redis did not take it, or it was too much."""


class _Question:
    __slots__ = ("answered", "length")

    def __init__(self, length: int) -> None:
        self.length = length
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def close(self) -> None:
        if not self.answered.done():
            self.answered.set_result(None)


class SharedSegments:
    """Mutable, for one event loop. `opened` makes the connection, again whenever it failed."""

    def __init__(
        self,
        *,
        cache: SegmentCache,
        sealed: SealedKept,
        opened: Callable[[], AbstractAsyncContextManager[Values]],
        rules: ShareRules,
        clock: Callable[[], float],
    ) -> None:
        """What is found goes into `cache`."""
        self.counts = ShareCounts()
        self.breaker = Breaker(
            does="shares compressed segments through Redis",
            without="compressing what is not in memory",
        )
        self._cache = cache
        self._sealed = sealed
        self._opened = opened
        self._rules = rules
        self._clock = clock
        self._budget = WriteBudget(max_bytes=rules.max_bytes, ttl_s=rules.ttl_s)
        self._questions: dict[bytes, _Question] = {}
        """Those that are not answered, in their order."""
        self._busy_since: float | None = None
        """A round trip is under way."""
        self._over = False
        self._unwritten: deque[tuple[bytes, Kept, int]] = deque()
        self._wake = asyncio.Event()

    async def recall(self, wanted: Mapping[bytes, int], within_s: float) -> None:
        """Texts by key, with their lengths. Returns when all that Redis has of them is in the
        cache, or the time is over, this or that of the rules."""
        if not self._answers() or len(self._questions) + len(wanted) > MAX_ASKED:
            self.counts.unasked += len(wanted)
            return
        asked = []
        for key, length in wanted.items():
            question = self._questions.get(key)
            if question is None:
                question = self._questions[key] = _Question(length)
            asked.append(question.answered)
        self._wake.set()
        _, late = await asyncio.wait(asked, timeout=min(self._rules.wait_s, within_s))
        self.counts.late += len(late)

    def tell(self, key: bytes, kept: Kept, length: int) -> None:
        """It was compressed here."""
        self._unwritten.append((key, kept, length))
        if len(self._unwritten) > MAX_UNWRITTEN:
            self._unwritten.popleft()
            self.counts.unwritten += 1
        self._wake.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Until it is left."""
        task = asyncio.create_task(self._keep(), name="compressed segments: redis")
        try:
            yield
        finally:
            self._over = True  # a cancellation may be lost inside of a command, see Session.end
            self._wake.set()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._give_up()

    def _answers(self) -> bool:
        """Whether an answer can be expected in time."""
        since = self._busy_since
        slow = since is not None and self._clock() - since > self._rules.wait_s
        return self.breaker.closed and not slow

    async def _keep(self) -> None:
        while not self._over:
            try:
                async with self._opened() as values:
                    await values.get([TRIAL], 1)
                    self._say(self.breaker.worked(self._clock()), logging.INFO)
                    await self._serve(values)
            except StoreFailed as failed:
                self._fails(str(failed))
            except Exception as error:  # noqa: BLE001 - a boundary: the next connection may do
                self._fails(f"unexpected {type(error).__name__}")
            await asyncio.sleep(self.breaker.pause_s)

    async def _serve(self, values: Values) -> None:
        """Raises StoreFailed."""
        while not self._over:
            await self._wake.wait()
            self._wake.clear()
            while not self._over and (self._questions or self._unwritten):
                if self._questions:
                    await self._ask(values)
                if self._unwritten:
                    await self._write(values)

    async def _ask(self, values: Values) -> None:
        asked = dict(islice(self._questions.items(), ASKED_AT_ONCE))
        with self._busy():
            found = await values.get(list(asked), MAX_BYTES + 1)
        began = self._clock()
        for (key, question), content in zip(asked.items(), found, strict=True):
            self._take_in(key, question.length, content)
            del self._questions[key]
            question.close()
            began = await self._breathe(began)

    async def _breathe(self, began: float) -> float:
        """Lets others go on where this has gone on since `began` for long; since when it has."""
        if self._clock() - began <= SLICE_S:
            return began
        await asyncio.sleep(0)
        return self._clock()

    def _take_in(self, key: bytes, length: int, content: bytes) -> None:
        if not content:
            self.counts.misses += 1
            return
        try:
            kept = self._sealed.open(key, length, content)
        except Unreadable:
            self.counts.refused += 1
            return
        self.counts.hits += 1
        self._cache.put(key, kept)

    async def _write(self, values: Values) -> None:
        """What fails with the connection is lost: it can be had again."""
        count = min(WRITTEN_AT_ONCE, len(self._unwritten))
        told = [self._unwritten.popleft() for _ in range(count)]
        made: list[tuple[bytes, bytes]] = []
        written = 0
        try:
            began = self._clock()
            for key, kept, length in told:
                content = self._sealed.close(key, kept, length)
                if content is not None and self._budget.take(len(content), began):
                    made.append((key, content))
                began = await self._breathe(began)
            if made:
                with self._busy():
                    written = await values.put(made, self._rules.ttl_s)
        finally:
            self.counts.written += written
            self.counts.unwritten += len(told) - written

    @contextmanager
    def _busy(self) -> Iterator[None]:
        self._busy_since = self._clock()
        try:
            yield
        finally:
            self._busy_since = None

    def _fails(self, reason: str) -> None:
        self._give_up()
        self._say(self.breaker.failed(reason, self._clock()), logging.WARNING)

    def _give_up(self) -> None:
        """Nobody waits for what will not come."""
        self.counts.unasked += len(self._questions)
        for question in self._questions.values():
            question.close()
        self._questions.clear()

    def _say(self, text: str, level: int) -> None:
        if text:
            log.log(level, "%s", text)
