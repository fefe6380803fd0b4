"""One run: a trace through a router to a fleet, on a virtual clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from prefold.proxy.simulate.engine import Engine, Job
from prefold.proxy.simulate.figures import Figures, figures_of
from prefold.proxy.simulate.router import Fleet, Router
from prefold.proxy.simulate.trace import Trace


class Clock:
    """Things that will happen, in order of their time, those of one time as they were planned."""

    def __init__(self) -> None:
        self.now = 0.0
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._planned, (time, next(self._numbers), action))

    def run_until(self, time: float) -> None:
        """What is planned up to that time happens; then it is that time."""
        while self._planned and self._planned[0][0] <= time:
            self.now, _, action = heapq.heappop(self._planned)
            action()
        self.now = time

    def run_out(self) -> None:
        while self._planned:
            self.run_until(self._planned[0][0])


class _Run:
    def __init__(self, router: Router, fleet: Fleet) -> None:
        self.clock = Clock()
        self.router = router
        self.engines = [Engine(fleet.engine) for _ in range(fleet.backends)]
        self.ttft_s: list[float] = []
        self.cached_tokens = 0

    def send(self, job: Job) -> None:
        self._plan_prefill(job.backend, self.engines[job.backend].submit(job, self.clock.now))

    def _plan_prefill(self, backend: int, end: float | None) -> None:
        if end is not None:
            self.clock.at(end, lambda: self._prefilled(backend))

    def _prefilled(self, backend: int) -> None:
        engine, now = self.engines[backend], self.clock.now
        job = engine.prefilled()
        self.ttft_s.append(now - job.request.arrival_s)
        self.cached_tokens += job.cached_tokens
        self.router.first_token(job, now)
        self.clock.at(now + engine.decode_s(job), lambda: self._finished(job))
        self._plan_prefill(backend, engine.start(now))

    def _finished(self, job: Job) -> None:
        engine, now = self.engines[job.backend], self.clock.now
        engine.finish(job)
        self.router.finished(job, now)
        self._plan_prefill(job.backend, engine.start(now))


def simulate(trace: Trace, router: Router, fleet: Fleet) -> Figures:
    """Every request to its end. What ends at the moment when another arrives ends before it."""
    run = _Run(router, fleet)
    for request in trace.requests:
        run.clock.run_until(request.arrival_s)
        backend = router.route(request, run.clock.now)
        run.send(Job(request, request.prefix.chain(trace.block_tokens), backend, run.clock.now))
    run.clock.run_out()
    return figures_of(
        ttft_s=run.ttft_s,
        cached_tokens=run.cached_tokens,
        engines=run.engines,
        duration_s=trace.duration_s,
    )
