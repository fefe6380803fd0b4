"""The product itself as a router: its index, its selection, its loads and its learned rates.

Nothing is copied here: what `Exchange` and `answer` do around a real request is done around a
simulated one.
"""

from __future__ import annotations

from prefold.backends.backend import Backend, Lease, Mode
from prefold.backends.health import HealthRules, Outcome
from prefold.backends.pool import BackendPool
from prefold.measurement.record import RequestRecord
from prefold.prefix_index.block_lru import BlockLru
from prefold.prefix_index.index import Placement, PrefixIndex
from prefold.prefix_index.reuse import ReuseEstimate
from prefold.proxy.prompt import Prompt
from prefold.proxy.routing import Policy, Weights
from prefold.proxy.selection import Selector
from prefold.proxy.simulate.engine import Job
from prefold.proxy.simulate.router import Fleet
from prefold.proxy.simulate.trace import Request

INITIAL_RATE = 5000.0
"""The default of `routing.initial_prefill_tokens_per_s`: the true rate has to be learned."""


class Product:
    """The caches' sizes are known, as engines tell them; what is in them is believed."""

    def __init__(self, fleet: Fleet, policy: Policy, weights: Weights) -> None:
        names = [f"backend-{number}" for number in range(fleet.backends)]
        self.backends = [_backend(name) for name in names]
        self._numbers = {name: number for number, name in enumerate(names)}
        self._index = PrefixIndex()
        reuse = ReuseEstimate()
        for name in names:
            cache = BlockLru(fleet.engine.cache_tokens, fleet.engine.block_tokens, reuse=reuse)
            self._index.set_cache(name, cache)
        self._now = 0.0
        self._selector = Selector(
            pool=BackendPool(self.backends, INITIAL_RATE),
            index=self._index,
            policy=policy,
            weights=weights,
            clock=lambda: self._now,
        )
        self._open: dict[int, tuple[Lease, Placement | None, bool]] = {}
        """By the identity of the request."""

    def route(self, request: Request, now: float) -> int:
        self._now = now
        prompt = Prompt({Mode.FEEDBACK: request.prefix}, request.prompt_tokens)
        selected = self._selector.select(
            self.backends, prompt, RequestRecord(endpoint="", received=now)
        )
        backend = selected.backend
        first_in_line = backend.queued_tokens == 0
        self._open[id(request)] = (
            Lease(backend, selected.uncached_tokens, now),
            self._index.begin(backend.name, request.prefix, now),
            first_in_line,
        )
        return self._numbers[backend.name]

    def first_token(self, job: Job, now: float) -> None:
        lease, _, first_in_line = self._open[id(job.request)]
        lease.prefilled(now)
        if first_in_line:
            lease.backend.rate.observe(job.computed_tokens, now - job.sent)

    def finished(self, job: Job, now: float) -> None:
        lease, placement, _ = self._open.pop(id(job.request))
        lease.release(Outcome.SUCCESS, now)
        if placement is not None:
            name = lease.backend.name
            self._index.correct(name, placement, job.cached_tokens, now)
            self._index.finish(name, placement, now)


def _backend(name: str) -> Backend:
    backend = Backend(name=name, url="", headers={}, engine=None, rules=HealthRules())
    backend.mode = Mode.FEEDBACK
    return backend
