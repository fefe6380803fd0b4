"""Cache models that are corrected, beside engines that are not what was believed: naive ones, block
by block and slot by slot, with another size, traffic of their own, and flushes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from prefold.prefix_index.block_lru import BlockLru
from prefold.prefix_index.index import CacheModel, Placement
from prefold.prefix_index.prefix import Prefix
from prefold.prefix_index.slots import SlotCache, common_tokens

BLOCK = 4
LENGTH = 40


def prefix_of(talk: int, turn: int, tenant: int, head: int = 2 * BLOCK) -> Prefix:
    """A tenant's head of so many tokens, then a conversation that grows with its turns."""
    tokens = np.concatenate([np.full(head, tenant), np.full(LENGTH, 100 + talk)])
    return Prefix.of_tokens(tokens[: head + 3 + turn * 5], 7)


class Blocks:
    """The engine: an LRU of blocks, tails before heads."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.used: dict[tuple[int, ...], None] = {}

    def serve(self, prefix: Prefix) -> int:
        tokens = tuple(int(token) for token in prefix.units)
        keys = [tokens[:end] for end in range(BLOCK, len(tokens) + 1, BLOCK)]
        found = 0
        while found < len(keys) and keys[found] in self.used:
            found += 1
        for key in reversed(keys[: self.blocks]):
            self.used.pop(key, None)
            self.used[key] = None
        while len(self.used) > self.blocks:
            del self.used[next(iter(self.used))]
        return min(found, (len(tokens) - 1) // BLOCK) * BLOCK

    def flush(self) -> None:
        self.used.clear()


class Slots:
    """The engine: sequences, the least recently used one is replaced."""

    def __init__(self, slots: int) -> None:
        self.slots: list[Prefix | None] = [None] * slots

    def serve(self, prefix: Prefix) -> int:
        common = [0 if held is None else common_tokens(held, prefix) for held in self.slots]
        best = max(range(len(common)), key=common.__getitem__)
        if common[best] / prefix.length <= 0.1:
            best = 0
        self.slots.pop(best)
        self.slots.append(prefix)
        return min(common[best], prefix.length - 1)

    def flush(self) -> None:
        self.slots = [None] * len(self.slots)


@dataclass(frozen=True)
class Step:
    talk: int
    turn: int
    tenant: int
    foreign: bool
    """Straight to the engine."""
    flush: bool


def steps(*, foreign: float, flush: float) -> st.SearchStrategy[list[Step]]:
    """A thousand requests from one seed: conversations, the latest ones more often."""

    def made(seed: int) -> list[Step]:
        rng = np.random.default_rng(seed)
        return [
            Step(
                talk := int(min(rng.exponential(6), 39))
                if rng.random() < 0.7
                else int(rng.integers(40)),
                int(rng.integers(9)),
                talk % 3,
                bool(rng.random() < foreign),
                bool(rng.random() < flush),
            )
            for _ in range(1000)
        ]

    return st.integers(0, 2**32).map(made)


def errors(
    made: list[Step], engine: Blocks | Slots, model: CacheModel, *, correct: bool
) -> list[int]:
    """|expected - reported| of each request that went through the model."""
    found = []
    for now, step in enumerate(made):
        if step.flush:
            engine.flush()
        # Of slots, what is common with another conversation would say which one is taken.
        head = 2 * BLOCK if isinstance(engine, Blocks) else 0
        prefix = prefix_of(step.talk, step.turn, step.tenant, head)
        if step.foreign:
            engine.serve(prefix)
            continue
        placement = model.begin(prefix, now)
        reported = engine.serve(prefix)
        found.append(abs(placement.cached_tokens - reported))
        if correct:
            model.correct(placement, reported, now)
        model.finish(placement, now)
    return found


def compared(
    made: list[Step], engine: Callable[[], Blocks | Slots], model: Callable[[], CacheModel]
) -> tuple[list[int], list[int]]:
    """Without corrections and with them."""
    return (
        errors(made, engine(), model(), correct=False),
        errors(made, engine(), model(), correct=True),
    )


def late(found: list[int]) -> int:
    """Of the last half."""
    return sum(found[len(found) // 2 :])


few = settings(max_examples=15, deadline=None)


@few
@given(made=steps(foreign=0, flush=0), true=st.integers(20, 150), times=st.sampled_from([2, 4]))
def test_a_smaller_cache_is_learned(made: list[Step], true: int, times: int) -> None:
    """The engine keeps a part of what it states: most of the error goes."""
    before, after = compared(
        made, lambda: Blocks(true), lambda: BlockLru(true * times * BLOCK, BLOCK)
    )
    assert late(after) <= late(before) * 0.2 + len(made) * 0.05 * BLOCK


@few
@given(made=steps(foreign=0, flush=0), true=st.integers(40, 150), times=st.sampled_from([2, 4]))
def test_a_larger_cache_is_learned(made: list[Step], true: int, times: int) -> None:
    """The settings guess too little."""
    before, after = compared(
        made,
        lambda: Blocks(true),
        lambda: BlockLru(true // times * BLOCK, BLOCK, most_tokens=true * 2 * BLOCK),
    )
    assert late(after) <= late(before) * 0.2 + len(made) * 0.05 * BLOCK


@few
@given(
    made=steps(foreign=0.3, flush=0.003)
    | steps(foreign=0, flush=0.01)
    | steps(foreign=0.5, flush=0),
    true=st.integers(20, 150),
    stated=st.integers(20, 200),
)
def test_corrections_never_make_it_worse_in_the_long_run(
    made: list[Step], true: int, stated: int
) -> None:
    """Whatever the engine does besides: others use it too, and it is flushed at random times. A
    block for each request is rounding."""
    before, after = compared(made, lambda: Blocks(true), lambda: BlockLru(stated * BLOCK, BLOCK))
    assert sum(after) <= sum(before) + len(made) * BLOCK


@few
@given(made=steps(foreign=0, flush=0), blocks=st.integers(20, 200))
def test_a_model_that_is_right_is_left_alone(made: list[Step], blocks: int) -> None:
    """No error, before or after."""
    before, after = compared(made, lambda: Blocks(blocks), lambda: BlockLru(blocks * BLOCK, BLOCK))
    assert not any(before)
    assert not any(after)


@few
@given(made=steps(foreign=0.3, flush=0.01), slots=st.integers(1, 6))
def test_slots_are_corrected(made: list[Step], slots: int) -> None:
    """With others' traffic and flushes, slots that were taken are missed less often."""
    before, after = compared(made, lambda: Slots(slots), lambda: SlotCache(slots, 1000))
    assert sum(after) <= sum(before) * 1.02 + len(made) // 10


@given(
    seed=st.integers(0, 2**32),
    block=st.integers(1, 4),
    blocks=st.integers(1, 20),
    times=st.integers(1, 3),
)
def test_whatever_is_reported_the_model_stays_a_cache(
    seed: int, block: int, blocks: int, times: int
) -> None:
    """In any order, of any figure, with failures: within its bounds, and closed under prefixes."""
    rng = np.random.default_rng(seed)
    most = blocks * times
    cache = BlockLru(blocks * block, block, most_tokens=most * block)
    flying: list[Placement] = []
    for now in range(60):
        if rng.random() < 0.5 or not flying:
            talk, turn, tenant = (int(rng.integers(upto)) for upto in (3, 9, 2))
            flying.append(cache.begin(prefix_of(talk, turn, tenant), now))
        placement = flying[int(rng.integers(len(flying)))]
        if rng.random() < 0.6:
            cache.correct(placement, int(rng.integers(placement.prefix.length + 1)), now)
        if rng.random() < 0.5:
            flying.remove(placement)
            cache.finish(placement, now, computed=bool(rng.random() < 0.8))
        assert cache.size_tokens <= cache.capacity_tokens <= most * block
        assert cache.size_tokens + cache.doubted_tokens <= most * block
    for talk in range(3):
        units = prefix_of(talk, 8, 0).units.astype(np.uint32)
        found = [
            cache.match(Prefix.of_tokens(np.append(units[:end], 9), 7)).cached_tokens
            for end in range(0, len(units), block)
        ]
        assert found == [min(found[-1], end) for end in range(0, len(units), block)]
