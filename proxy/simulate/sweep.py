"""Which runs were asked for: every policy at every size of fleet and cache, and every load."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from prefold.proxy.simulate.engine import EngineShape
from prefold.proxy.simulate.figures import Bounds, Figures, bounds_of
from prefold.proxy.simulate.policies import POLICIES
from prefold.proxy.simulate.router import Fleet
from prefold.proxy.simulate.run import simulate
from prefold.proxy.simulate.trace import Trace


class SweepError(Exception):
    """These runs make no sense together; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    backends: Sequence[int]
    cache_tokens: Sequence[int]
    """Of each backend."""
    loads: Sequence[float]
    """Prompt tokens that arrive in a second, over those that the fleet's prefill computes in one:
    the load if nothing were cached. It sets the prefill rate."""
    policies: Sequence[str]
    prefill_tokens_per_s: float | None = None
    """Of each backend, in place of `loads`."""
    slots: int = 256
    token_s: float = 0.03
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    figures: Figures
    cpu_s: float
    """What it cost to simulate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One fleet under one load, with every policy."""

    fleet: Fleet
    load: float
    bounds: Bounds
    outcomes: Mapping[str, Outcome]


def runs(
    trace: Trace, sweep: Sweep, on_policy: Callable[[str], None] = lambda policy: None
) -> Iterator[Run]:
    """One after the other; `on_policy` hears of each policy before its turn. Raises SweepError."""
    _check(trace, sweep)
    bounds: dict[int, Bounds] = {}
    for backends, cache_tokens, load in product(sweep.backends, sweep.cache_tokens, _loads(sweep)):
        pooled = backends * cache_tokens
        if pooled not in bounds:
            bounds[pooled] = bounds_of(trace, pooled)
        fleet = Fleet(
            backends=backends,
            engine=EngineShape(
                cache_tokens=cache_tokens,
                block_tokens=trace.block_tokens,
                prefill_tokens_per_s=_rate(trace, sweep, backends, load),
                slots=sweep.slots,
                token_s=sweep.token_s,
            ),
        )
        yield Run(
            fleet=fleet,
            load=_offered(trace) / (backends * fleet.engine.prefill_tokens_per_s),
            bounds=bounds[pooled],
            outcomes=_outcomes(trace, fleet, sweep, on_policy),
        )


def _check(trace: Trace, sweep: Sweep) -> None:
    if sweep.prefill_tokens_per_s is None and not trace.duration_s:
        raise SweepError("all requests arrive at once, so a load says nothing: give a prefill rate")
    if min(sweep.cache_tokens) < trace.block_tokens:
        raise SweepError(f"no block of {trace.block_tokens} tokens fits the smallest cache")


def _loads(sweep: Sweep) -> Sequence[float]:
    return sweep.loads if sweep.prefill_tokens_per_s is None else (0.0,)


def _offered(trace: Trace) -> float:
    """Prompt tokens per second."""
    return trace.prompt_tokens / trace.duration_s if trace.duration_s else 0.0


def _rate(trace: Trace, sweep: Sweep, backends: int, load: float) -> float:
    if sweep.prefill_tokens_per_s is not None:
        return sweep.prefill_tokens_per_s
    return _offered(trace) / (backends * load)


def _outcomes(
    trace: Trace, fleet: Fleet, sweep: Sweep, on_policy: Callable[[str], None]
) -> dict[str, Outcome]:
    made = {}
    for policy in sweep.policies:
        on_policy(policy)
        made[policy] = _outcome(trace, fleet, policy, sweep.seed)
    return made


def _outcome(trace: Trace, fleet: Fleet, policy: str, seed: int) -> Outcome:
    began = time.process_time()
    figures = simulate(trace, POLICIES[policy](fleet, seed), fleet)
    return Outcome(figures=figures, cpu_s=time.process_time() - began)
