"""Compressor processes and the queue before them.

A free process takes what waits, of however many requests, as one batch. A process that ends, hangs
or talks nonsense is killed and started again after a pause; the jobs of its batch fail, and whoever
waits for them sends the original. Knows nothing of requests, caches or deadlines.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from prefold.compression.worker.child import CannotOpen, ChildGone
from prefold.compression.worker.faults import Faults, kind_of
from prefold.compression.worker.messages import Done, Ready
from prefold.compression.worker.speed import Speed

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 60.0


class Unavailable(Exception):
    """Not compressed: the queue is full, the process failed, or the text cannot be. `kind` says how
    this text failed, where that is known."""

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRules:
    """`start_s`: a model may have to be loaded. `hang_s`: a batch that takes longer is given up,
    and its process killed. Characters bound a batch (one text may be longer) and the queue."""

    workers: int = 1
    start_s: float = 300.0
    hang_s: float = 30.0
    batch_chars: int = 200_000
    queue_chars: int = 10_000_000


class Serving(Protocol):
    """A compressor that is ready: a process of ours, or one behind HTTP."""

    ready: Ready

    @property
    def pid(self) -> int:
        """0: none of ours."""

    async def compress(self, jobs: Sequence[tuple[str, float]]) -> Done:
        """Raises ChildGone."""


class Job:
    """One text under way. `spans` becomes its kept spans, flat, or fails with Unavailable. `spent`
    is told of its share, by characters, of the seconds of its batch."""

    __slots__ = ("rate", "spans", "spent", "text")

    def __init__(self, text: str, rate: float, spans: asyncio.Future[Sequence[int]]) -> None:
        self.text = text
        self.rate = rate
        self.spans = spans
        self.spent: Callable[[float], None] | None = None


class WorkerPool:
    """Used as a context manager. Mutable, for one event loop."""

    def __init__(
        self,
        start: Callable[[], AbstractAsyncContextManager[Serving]],
        rules: PoolRules,
        clock: Callable[[], float],
    ) -> None:
        self._start = start
        self._rules = rules
        self._clock = clock
        self._waiting: deque[Job] = deque()
        self._more = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._batches: dict[int, tuple[float, int]] = {}
        """By process: since when it computes, and how many characters."""
        self._waiting_chars = 0
        self.up = 0
        """Processes that are ready."""
        self.starts = 0
        self.failures = 0
        """Of processes; `faults` has their kinds, and those of texts."""
        self.faults = Faults()
        self.digest: str | None = None
        """Of compressor and protection; None before one was ever ready."""
        self.name = ""
        self.speed = Speed()
        self.busy_s = 0.0
        """Of batches that are over, whatever came of them, all processes together."""
        self.pids: set[int] = set()

    async def __aenter__(self) -> WorkerPool:
        self._tasks = [
            asyncio.create_task(self._keep_one(number), name=f"compressor {number}")
            for number in range(self._rules.workers)
        ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._fail(self._waiting)
        self._waiting.clear()

    @property
    def load(self) -> tuple[int, int]:
        """Jobs and characters that wait or are under way."""
        jobs = sum(not job.spans.done() for job in self._waiting)
        return jobs, self._waiting_chars + sum(chars for _, chars in self._batches.values())

    def submit(self, text: str, rate: float) -> Job:
        """Raises Unavailable where there is no process, or no room. A job that nobody waits for any
        more is cancelled by its `spans`: unless it was begun, it is then not done."""
        if not self.up:
            raise Unavailable("no compressor is ready")
        if self._waiting_chars + len(text) > self._rules.queue_chars:
            raise Unavailable("too much waits for the compressor")
        job = Job(text, rate, asyncio.get_running_loop().create_future())
        job.spans.add_done_callback(_looked_at)
        self._waiting.append(job)
        self._waiting_chars += len(text)
        self._more.set()
        return job

    def seconds_for(self, chars: int) -> float:
        """Until texts of so many characters would be done, were they given now; infinity: never, as
        far as is known. A batch that takes longer than it should is expected to take as long again
        as it has."""
        rate = self.speed.chars_per_s
        if not self.up or rate is None:
            return float("inf")
        now, under_way = self._clock(), 0.0
        for since, batch_chars in self._batches.values():
            age, due = now - since, batch_chars / rate
            under_way += due - age if age < due else age
        return (under_way + (self._waiting_chars + chars) / rate) / self.up

    async def _keep_one(self, number: int) -> None:
        pause = FIRST_PAUSE_S
        while True:
            worked = False
            try:
                async with asyncio.timeout(self._rules.start_s) as limit, self._start() as child:
                    limit.reschedule(None)
                    self._came_up(child)
                    try:
                        while True:
                            await self._one_batch(number, child)
                            worked = True
                    finally:
                        self._went_down(child)
            except CannotOpen as error:
                log.error("compressor %d cannot be opened: %s", number, error)
                self.faults.process("cannot_open")
                pause = MAX_PAUSE_S
            except (ChildGone, TimeoutError, OSError, UnicodeEncodeError) as error:
                kind, why = kind_of(error)
                self.faults.process(kind)
                log.warning("compressor %d failed: %s; prompts go out as they came", number, why)
            self.failures += 1
            pause = FIRST_PAUSE_S if worked else pause
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_S)

    def _came_up(self, child: Serving) -> None:
        ready = child.ready
        self.name, self.digest = ready.name, ready.digest
        if self.speed.chars_per_s is None:
            self.speed.observe(1, 1 / ready.chars_per_s)
        self.up += 1
        self.starts += 1
        self.pids.add(child.pid)
        log.info("compressor %s is ready, process %d", ready.name, child.pid)

    def _went_down(self, child: Serving) -> None:
        self.up -= 1
        self.pids.discard(child.pid)
        if not self.up:
            self._fail(self._waiting)
            self._waiting.clear()
            self._waiting_chars = 0

    async def _one_batch(self, number: int, child: Serving) -> None:
        """Raises ChildGone, TimeoutError. The jobs end in any case."""
        jobs = await self._next_batch()
        chars = sum(len(job.text) for job in jobs)
        begun = self._clock()
        self._batches[number] = begun, chars
        try:
            async with asyncio.timeout(self._rules.hang_s):
                done = await child.compress([(job.text, job.rate) for job in jobs])
            if any(spans is not None for spans in done.kept):  # to fail may be quick
                self.speed.observe(chars, max(self._clock() - begun, 1e-6))
            for place, (job, spans) in enumerate(zip(jobs, done.kept, strict=True)):
                if spans is None:
                    self._text_failed(job, done.failed.get(place, "unknown"))
                elif not job.spans.done():
                    job.spans.set_result(spans)
        finally:
            del self._batches[number]
            self._account(jobs, self._clock() - begun)
            self._fail(jobs)

    def _account(self, jobs: Sequence[Job], seconds: float) -> None:
        self.busy_s += seconds
        chars = sum(len(job.text) for job in jobs)
        for job in jobs:
            if job.spent is not None and chars:
                job.spent(seconds * len(job.text) / chars)

    def _text_failed(self, job: Job, kind: str) -> None:
        told = self.faults.text(kind, self._clock())
        if told is not None:
            log.warning("the compressor failed on a text: %s (%d since told last)", *told)
        if not job.spans.done():
            job.spans.set_exception(Unavailable("the compressor failed on it", kind))

    async def _next_batch(self) -> list[Job]:
        while True:
            jobs: list[Job] = []
            chars = 0
            while self._waiting:
                job = self._waiting[0]
                if jobs and chars + len(job.text) > self._rules.batch_chars:
                    break
                self._waiting.popleft()
                self._waiting_chars -= len(job.text)
                if not job.spans.done():
                    jobs.append(job)
                    chars += len(job.text)
            if jobs:
                return jobs
            self._more.clear()
            await self._more.wait()

    def _fail(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            if not job.spans.done():
                job.spans.set_exception(Unavailable("the compressor did not do it"))


def _looked_at(spans: asyncio.Future[Sequence[int]]) -> None:
    """Nobody need wait for it."""
    if not spans.cancelled():
        spans.exception()
