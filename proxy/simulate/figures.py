"""The figures of one run, each with its definition, and what no router can beat by much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prefold.proxy.simulate.engine import BlockCache, Engine, reusable_tokens
from prefold.proxy.simulate.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Ttft:
    """Milliseconds from arrival to the end of the prefill; percentiles are interpolated."""

    p50: float
    p90: float
    p99: float
    mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    hit_rate: float
    """Prompt tokens that the engines reused, of all prompt tokens."""
    imbalance: float
    """Computed prompt tokens of the backend with the most, over the mean of all; 1 if none were."""
    ttft_ms: Ttft
    evicted_tokens: int
    computed_tokens: int
    utilisation: float
    """Of the busiest backend: seconds of prefill it was given, over the time in which requests
    arrived. Above 1, its queue only grew: it was not stable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Hit rates of one cache that sees all requests in their order of arrival."""

    pooled: float
    """As large as all of the fleet's together: what a router could reach that never makes a copy
    and always evicts what the whole fleet used longest ago. Not a strict bound: LRU is not the
    best one can do."""
    infinite: float
    """Without bound: no router can do better."""


def figures_of(
    *, ttft_s: Sequence[float], cached_tokens: int, engines: Sequence[Engine], duration_s: float
) -> Figures:
    computed = [engine.computed_tokens for engine in engines]
    total, most = sum(computed), max(computed)
    shape = engines[0].shape
    p50, p90, p99 = (float(value) for value in np.percentile(ttft_s, (50, 90, 99)) * 1000)
    return Figures(
        hit_rate=cached_tokens / (cached_tokens + total),
        imbalance=most * len(engines) / total,
        ttft_ms=Ttft(p50=p50, p90=p90, p99=p99, mean=float(np.mean(ttft_s)) * 1000),
        evicted_tokens=sum(engine.cache.evicted for engine in engines) * shape.block_tokens,
        computed_tokens=total,
        utilisation=most / shape.prefill_tokens_per_s / duration_s if duration_s else 0.0,
    )


def bounds_of(trace: Trace, pooled_tokens: int) -> Bounds:
    return Bounds(
        pooled=_single_cache(trace, BlockCache(pooled_tokens // trace.block_tokens)),
        infinite=_single_cache(trace, BlockCache(None)),
    )


def _single_cache(trace: Trace, cache: BlockCache) -> float:
    reused = 0
    for request in trace.requests:
        keys = request.prefix.chain(trace.block_tokens)
        reused += reusable_tokens(request, cache.held(keys), trace.block_tokens)
        cache.touch(keys)
    return reused / trace.prompt_tokens
