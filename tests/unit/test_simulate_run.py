"""The simulated fleet: small cases worked out by hand, and a naive cache to compare with."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.proxy.simulate.engine import BlockCache, EngineShape, Job
from prefold.proxy.simulate.figures import bounds_of
from prefold.proxy.simulate.router import Fleet
from prefold.proxy.simulate.run import Clock, simulate
from prefold.proxy.simulate.trace import Request, Row, Trace, build_trace


class Scripted:
    """Sends each request where it is told, and notes what it is told of it."""

    def __init__(self, backends: Sequence[int]) -> None:
        self._backends = list(backends)
        self.told: list[tuple[str, float, float]] = []

    def route(self, request: Request, now: float) -> int:
        self.told.append(("route", request.arrival_s, now))
        return self._backends.pop(0)

    def first_token(self, job: Job, now: float) -> None:
        self.told.append(("first", job.request.arrival_s, now))

    def finished(self, job: Job, now: float) -> None:
        self.told.append(("finished", job.request.arrival_s, now))


def trace_of(*rows: tuple[float, list[int]], output: int = 0) -> Trace:
    """Blocks of 10 tokens, each prompt one token longer than its blocks."""
    return build_trace(
        "test", 10, [Row(at, len(blocks) * 10 + 1, output, blocks) for at, blocks in rows]
    )


def fleet(backends: int = 1, *, cache: int = 1000, slots: int = 9, token_s: float = 0.0) -> Fleet:
    """10 tokens of prefill a second."""
    return Fleet(
        backends=backends,
        engine=EngineShape(
            cache_tokens=cache,
            block_tokens=10,
            prefill_tokens_per_s=10.0,
            slots=slots,
            token_s=token_s,
        ),
    )


def test_the_clock_runs_in_order_of_time_then_of_planning() -> None:
    """What is planned while it runs happens in its turn, and the clock stands where it was told."""
    clock = Clock()
    seen: list[tuple[str, float]] = []

    def note(name: str) -> None:
        seen.append((name, clock.now))

    def early() -> None:
        note("early")
        clock.at(1.5, lambda: note("between"))

    clock.at(2.0, lambda: note("late"))
    clock.at(1.0, early)
    clock.at(2.0, lambda: note("later"))
    clock.at(5.0, lambda: note("after"))
    clock.run_until(3.0)

    assert seen == [("early", 1.0), ("between", 1.5), ("late", 2.0), ("later", 2.0)]
    assert clock.now == 3.0
    clock.run_out()
    assert seen[-1] == ("after", 5.0)


def test_ttft_is_queue_and_own_uncached_prefill() -> None:
    """21 tokens take 2.1 s; the same again waits for it, then computes its last token only."""
    trace = trace_of((0.0, [1, 2]), (1.0, [1, 2]), (10.0, [1, 3]))
    figures = simulate(trace, Scripted([0, 0, 0]), fleet())

    # TTFT 2.1 s, 1.1 s of queue + 0.1 s, and 11 uncached tokens of 21.
    assert figures.ttft_ms.p50 == pytest.approx(1200)
    assert figures.ttft_ms.mean == pytest.approx((2100 + 1200 + 1100) / 3)
    assert figures.hit_rate == pytest.approx(30 / 63)
    assert figures.computed_tokens == 33
    assert figures.utilisation == pytest.approx(33 / 10 / 10)


def test_the_router_is_told_three_times() -> None:
    """At arrival, at the first token, and when the last one is out, on the virtual clock."""
    router = Scripted([0, 0])
    simulate(trace_of((0.0, [1]), (0.5, [1]), output=4), router, fleet(token_s=0.5))

    assert router.told == [
        ("route", 0.0, 0.0),
        ("route", 0.5, 0.5),
        ("first", 0.0, pytest.approx(1.1)),
        ("first", 0.5, pytest.approx(1.2)),
        ("finished", 0.0, pytest.approx(3.1)),
        ("finished", 0.5, pytest.approx(3.2)),
    ]


def test_a_request_waits_for_a_slot() -> None:
    """With one slot, the next prefill begins when the one before has spoken its last token."""
    trace = trace_of((0.0, [1]), (0.0, [2]), output=2)
    figures = simulate(trace, Scripted([0, 0]), fleet(slots=1, token_s=1.0))

    assert figures.ttft_ms.mean == pytest.approx((1100 + 4200) / 2)


def test_backends_have_caches_and_queues_of_their_own() -> None:
    """A prefix is reused only where it was computed, and imbalance is the most over the mean."""
    trace = trace_of((0.0, [1]), (0.0, [1]), (9.0, [1]), (9.0, [1, 2]))
    figures = simulate(trace, Scripted([0, 1, 0, 0]), fleet(2))

    assert figures.hit_rate == pytest.approx(20 / 54)
    assert figures.computed_tokens == 34  # 23 on the first, 11 on the second
    assert figures.imbalance == pytest.approx(23 / 17)


def test_a_full_cache_evicts_what_was_used_longest_ago_tails_first() -> None:
    """Of three blocks, the tail of the older prompt goes; its head is still reused."""
    trace = trace_of((0.0, [1, 2]), (9.0, [3]), (18.0, [4]), (27.0, [1, 2]))
    figures = simulate(trace, Scripted([0, 0, 0, 0]), fleet(cache=30))

    # 4 evicts 2; at the end 2 evicts 3, which is then the oldest.
    assert figures.hit_rate == pytest.approx(10 / 64)
    assert figures.evicted_tokens == 20


def test_bounds_are_those_of_one_cache() -> None:
    """Pooled: the LRU cache of the fleet's size in order of arrival. Infinite: nothing is lost."""
    trace = trace_of((0.0, [1]), (1.0, [2]), (2.0, [1]), (3.0, [2]))

    assert bounds_of(trace, 20).pooled == bounds_of(trace, 20).infinite == pytest.approx(20 / 44)
    assert bounds_of(trace, 10).pooled == 0.0


class NaiveCache:
    """A list of blocks, the least recently used first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.blocks: list[int] = []

    def held(self, keys: Sequence[int]) -> int:
        return next((n for n, key in enumerate(keys) if key not in self.blocks), len(keys))

    def touch(self, keys: Sequence[int]) -> None:
        for key in reversed(keys[: self.capacity]):
            self.blocks = [block for block in self.blocks if block != key] + [key]
        self.blocks = self.blocks[max(len(self.blocks) - self.capacity, 0) :]


@given(
    st.integers(1, 6),
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), max_size=20),
)
def test_the_cache_is_an_lru_over_blocks(capacity: int, prompts: list[list[int]]) -> None:
    """Against a list: the same blocks are held, and what is held is closed under prefixes."""
    rows = [Row(0.0, len(prompt) * 10, 0, prompt) for prompt in prompts]
    requests = build_trace("test", 10, rows).requests if rows else []
    cache, naive = BlockCache(capacity), NaiveCache(capacity)
    chains = [request.prefix.chain(10) for request in requests]
    for chain in chains:
        assert cache.held(chain) == naive.held(chain)
        cache.touch(chain)
        naive.touch(chain)
        assert len(cache) == len(naive.blocks) <= capacity
    for chain in chains:
        assert cache.held(chain) == naive.held(chain)
