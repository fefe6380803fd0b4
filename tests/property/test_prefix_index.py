"""The cache models against naive ones that work token by token and block by block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)

from prefold.prefix_index.block_lru import BlockLru
from prefold.prefix_index.index import Placement, PrefixIndex
from prefold.prefix_index.prefix import Prefix
from prefold.prefix_index.runs import common_blocks
from prefold.prefix_index.slots import SlotCache, common_tokens

Tokens = tuple[int, ...]

tokens = st.lists(st.integers(0, 2), max_size=24).map(tuple)
related = st.builds(
    # Turns of three conversations that begin alike, some with an end of their own.
    lambda talk, turn, end: ((0,) * 8 + (talk,) * 16)[: turn * 4] + end,
    st.integers(0, 2),
    st.integers(0, 6),
    st.just(()) | st.lists(st.integers(0, 2), max_size=4).map(tuple),
)
prompts = related | tokens
seeds = st.integers(0, 2**64 - 1)


def prefix_of(prompt: Sequence[int], seed: int = 7) -> Prefix:
    return Prefix.of_tokens(np.array(prompt, dtype=np.uint32), seed)


def common_length(left: Sequence[int], right: Sequence[int]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


class NaiveBlocks:
    """Each block is the tuple of all tokens up to its end, with the time of its last touch."""

    def __init__(self, capacity: int, size: int) -> None:
        self.capacity, self.size = capacity, size
        self.touched: dict[Tokens, int] = {}
        self.promised_by: dict[Tokens, object | None] = {}
        self.clock = 0

    def blocks(self, prompt: Tokens) -> list[Tokens]:
        ends = range(self.size, len(prompt) + 1, self.size)
        return [prompt[:end] for end in ends][: self.capacity]

    def known(self, prompt: Tokens) -> list[Tokens]:
        return [block for block in self.blocks(prompt) if block in self.touched]

    def match(self, prompt: Tokens) -> int:
        return max([len(block) for block in self.known(prompt) if len(block) < len(prompt)] + [0])

    def has_children(self, block: Tokens) -> bool:
        longer = len(block) + self.size
        return any(len(other) == longer and other[: len(block)] == block for other in self.touched)

    def touch(self, prompt: Tokens, promise: object | None) -> None:
        for block in reversed(self.blocks(prompt)):
            self.clock += 1
            if block not in self.touched:
                self.promised_by[block] = promise
            self.touched[block] = self.clock
        while len(self.touched) > self.capacity:
            leaves = [block for block in self.touched if not self.has_children(block)]
            self.forget(min(leaves, key=self.touched.__getitem__))

    def forget(self, block: Tokens) -> None:
        del self.touched[block], self.promised_by[block]

    def evicts(self, prompt: Tokens) -> int:
        after = NaiveBlocks(self.capacity, self.size)
        after.touched, after.promised_by = dict(self.touched), dict(self.promised_by)
        after.clock = self.clock
        after.touch(prompt, None)
        return len(self.touched.keys() - after.touched.keys()) * self.size

    def computed(self, prompt: Tokens) -> None:
        self.touch(prompt, None)
        for block in self.known(prompt):
            self.promised_by[block] = None

    def not_computed(self, prompt: Tokens, open_promises: set[object]) -> None:
        for block in reversed(self.known(prompt)):
            promise = self.promised_by[block]
            if self.has_children(block) or promise is None or promise in open_promises:
                break
            self.forget(block)


class NaiveSlots:
    """Each slot is [tokens, busy with, time of release, tokens kept by the one it is busy with]."""

    def __init__(self, count: int, context: int) -> None:
        self.context = context
        self.slots: list[list[object]] = [[(), None, -1, 0] for _ in range(count)]
        self.waiting: list[tuple[object, Tokens]] = []

    def pick(self, prompt: Tokens) -> tuple[list[object], int]:
        def common(slot: list[object]) -> int:
            held = slot[0]
            assert isinstance(held, tuple)
            return common_length(held, prompt)

        idle = [slot for slot in self.slots if slot[1] is None]
        best = None
        for slot in idle or self.slots:
            if best is None or common(slot) > common(best):
                best = slot
        assert best is not None
        if idle and not common(best) > len(prompt) / 10:
            best = idle[0]
            for slot in idle:
                if slot[2] <= best[2]:  # type: ignore[operator]
                    best = slot
        return best, common(best)

    def match(self, prompt: Tokens) -> int:
        if len(prompt) >= self.context:
            return 0
        return max(min(self.pick(prompt)[1], len(prompt) - 1), 0)

    def evicts(self, prompt: Tokens) -> int:
        if len(prompt) >= self.context:
            return 0
        slot, common = self.pick(prompt)
        assert isinstance(slot[0], tuple)
        return len(slot[0]) - common

    def begin(self, key: object, prompt: Tokens) -> None:
        if len(prompt) < self.context:
            self.waiting.append((key, prompt))
            self.serve()

    def serve(self) -> None:
        while self.waiting and any(slot[1] is None for slot in self.slots):
            key, prompt = self.waiting.pop(0)
            slot, common = self.pick(prompt)
            slot[:] = [prompt, key, slot[2], common]

    def finish(self, key: object, now: int, computed: bool) -> None:
        self.waiting = [entry for entry in self.waiting if entry[0] is not key]
        for slot in self.slots:
            if slot[1] is key:
                held, _, released, kept = slot
                assert isinstance(held, tuple)
                assert isinstance(kept, int)
                slot[:] = [held, None, now, 0] if computed else [held[:kept], None, released, 0]
                self.serve()


class Flight:
    """A request in flight on one backend, and the naive model's own name for it."""

    def __init__(self, backend: str, prompt: Tokens, placement: Placement, model: object) -> None:
        self.backend, self.prompt, self.placement, self.model = backend, prompt, placement, model


class IndexMachine(RuleBasedStateMachine):
    """Any order of begin, finish, repeated and late finish, clear, replace and remove."""

    flights = Bundle("flights")
    ended = Bundle("ended")
    backend = st.sampled_from(["blocks", "slots"])

    @initialize(
        block=st.integers(1, 3),
        blocks=st.integers(1, 8),
        slots=st.integers(1, 3),
        context=st.integers(1, 26),
    )
    def start(self, block: int, blocks: int, slots: int, context: int) -> None:
        self.block, self.blocks, self.slots, self.context = block, blocks, slots, context
        self.index = PrefixIndex()
        self.now = 0
        self.naive_blocks: NaiveBlocks | None = None
        self.naive_slots: NaiveSlots | None = None
        self.open: set[object] = set()
        self.prefixes: dict[Tokens, Prefix] = {}
        self.replace("blocks")
        self.replace("slots")

    def prefix(self, prompt: Tokens) -> Prefix:
        """The same object for the same prompt, so that nothing a cache remembers of it is stale."""
        return self.prefixes.setdefault(prompt, prefix_of(prompt))

    @rule(backend=backend)
    def replace(self, backend: str) -> None:
        if backend == "blocks":
            self.cache = BlockLru(self.blocks * self.block, self.block)
            self.index.set_cache(backend, self.cache)
            self.naive_blocks = NaiveBlocks(self.blocks, self.block)
        else:
            self.index.set_cache(backend, SlotCache(self.slots, self.context))
            self.naive_slots = NaiveSlots(self.slots, self.context)

    @rule(backend=backend)
    def clear(self, backend: str) -> None:
        self.index.clear(backend)
        if backend == "blocks" and self.naive_blocks is not None:
            self.naive_blocks = NaiveBlocks(self.blocks, self.block)
        if backend == "slots" and self.naive_slots is not None:
            self.naive_slots = NaiveSlots(self.slots, self.context)

    @rule(backend=backend)
    def remove(self, backend: str) -> None:
        self.index.remove(backend)
        if backend == "blocks":
            self.naive_blocks = None
        else:
            self.naive_slots = None

    @rule(target=flights, backend=backend, prompt=prompts)
    def begin(self, backend: str, prompt: Tokens) -> Flight | None:
        prefix = self.prefix(prompt)
        expected = self.index.match(prefix, backend)
        placement = self.index.begin(backend, prefix, self.now)
        model = self.naive_blocks if backend == "blocks" else self.naive_slots
        if model is None:
            assert placement is None
            return None
        assert placement is not None
        assert placement.cached_tokens == expected.cached_tokens
        flight = Flight(backend, prompt, placement, model)
        self.open.add(flight.placement)
        if isinstance(model, NaiveBlocks):
            model.touch(prompt, flight.placement)
        else:
            model.begin(flight.placement, prompt)
        return flight

    @rule(target=ended, flight=consumes(flights), computed=st.booleans())
    def finish(self, flight: Flight | None, computed: bool) -> Flight | None:
        self.now += 1
        if flight is None:
            return None
        self.index.finish(flight.backend, flight.placement, self.now, computed=computed)
        self.open.discard(flight.placement)
        if flight.model is self.naive_blocks and self.naive_blocks is not None:
            if computed:
                self.naive_blocks.computed(flight.prompt)
            else:
                self.naive_blocks.not_computed(flight.prompt, self.open)
        if flight.model is self.naive_slots and self.naive_slots is not None:
            self.naive_slots.finish(flight.placement, self.now, computed)
        return flight

    @rule(flight=ended, computed=st.booleans())
    def finish_again(self, flight: Flight | None, computed: bool) -> None:
        if flight is not None:
            self.index.finish(flight.backend, flight.placement, self.now, computed=computed)

    @rule(prompt=prompts)
    def compare(self, prompt: Tokens) -> None:
        prefix = self.prefix(prompt)
        for name, model in (("blocks", self.naive_blocks), ("slots", self.naive_slots)):
            expected = (0, 0) if model is None else (model.match(prompt), model.evicts(prompt))
            assert self.index.match(prefix, name) == expected
        assert self.index.match(prefix, "unknown") == (0, 0)

    @invariant()
    def knows_the_same_blocks(self) -> None:
        if self.naive_blocks is None:
            return
        assert self.cache.size_tokens == len(self.naive_blocks.touched) * self.block
        assert self.cache.size_tokens <= self.cache.capacity_tokens
        for block in self.naive_blocks.touched:
            # One token more, or the last block would not count.
            assert self.cache.match(prefix_of((*block, 9))).cached_tokens >= len(block)


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


@given(held=st.lists(prompts, max_size=12), block=st.integers(1, 4), capacity=st.integers(1, 9))
def test_known_blocks_are_closed_under_prefixes(
    held: list[Tokens], block: int, capacity: int
) -> None:
    """If a block is known, so are all before it: the longer match says at least as much."""
    cache = BlockLru(capacity * block, block)
    for prompt in held:
        cache.finish(cache.begin(prefix_of(prompt), 0.0), 0.0)
    for prompt in held:
        ends = range(len(prompt) + 1)
        matches = [cache.match(prefix_of((*prompt[:end], 9))).cached_tokens for end in ends]
        whole = matches[-1]
        assert matches == [min(whole, end // block * block) for end in ends]


@given(
    same=st.integers(1, 40),
    run=st.integers(0, 40),
    asked=st.integers(0, 40),
    start=st.integers(0, 5),
)
def test_bisection_finds_where_chains_part(same: int, run: int, asked: int, start: int) -> None:
    """As far as two chains go together, wherever the comparison starts."""
    shared = list(range(start + same))
    held, keys = shared[start:] + [-1] * run, shared + [-2] * asked
    assert common_blocks(held, keys, start) == same


@given(left=prompts, right=prompts, block=st.integers(1, 4), one=seeds, other=seeds)
def test_keys_are_equal_exactly_where_prefixes_and_seeds_are(
    left: Tokens, right: Tokens, block: int, one: int, other: int
) -> None:
    """The chain shares as many keys as the prompts share full blocks; across namespaces, none."""
    mine, yours = prefix_of(left, one).chain(block), prefix_of(right, one).chain(block)
    assert common_length(mine, yours) == common_length(left, right) // block
    shared = common_length(left, right) // block
    assert not set(mine[shared:]) & set(yours[shared:])
    if one != other:
        assert not set(mine) & set(prefix_of(right, other).chain(block))


@given(prompt=st.lists(st.integers(0, 3), max_size=40), more=tokens, cut=st.integers(1, 300))
def test_affinity_is_that_of_the_first_tokens(prompt: list[int], more: Tokens, cut: int) -> None:
    """Prompts with the same first N tokens have one affinity, others have not."""
    one, other = prefix_of(prompt), prefix_of((*prompt, *more))
    same = prompt[:cut] == [*prompt, *more][:cut]
    assert (one.affinity(cut) == other.affinity(cut)) == same


@example(length=9000, differs=1024, other=9000)
@example(length=9000, differs=1024 + 4096, other=9000)
@given(length=st.integers(0, 9000), differs=st.integers(0, 9000), other=st.integers(0, 9000))
def test_common_tokens_of_long_prompts(length: int, differs: int, other: int) -> None:
    """The stepwise comparison finds the first difference wherever it lies."""
    left = np.zeros(length, dtype=np.uint32)
    right = np.zeros(other, dtype=np.uint32)
    right[differs : differs + 1] = 1
    expected = min(length, other, differs if differs < other else other)
    one, two = Prefix.of_tokens(left, 1), Prefix.of_tokens(right, 1)
    assert common_tokens(one, two) == expected


@given(
    held=st.lists(prompts, max_size=8),
    prompt=prompts,
    more=st.integers(0, 9),
    cut=st.integers(0, 9),
    paged=st.booleans(),
)
def test_of_a_prompt_whose_beginning_is_known_that_much_is_matched(
    held: list[Tokens], prompt: Tokens, more: int, cut: int, paged: bool
) -> None:
    """Of blocks as many as of the beginning alone, and the last one too; it takes the room of all.
    Which slot it takes depends on how much of all of it is common."""
    cache = BlockLru(12, 2) if paged else SlotCache(2, 100)
    for text in held:
        cache.finish(cache.begin(prefix_of(text), 0.0), 0.0)
    beginning = np.array(prompt[:cut], dtype=np.uint32)
    found = cache.match(Prefix.of_tokens(beginning, 7, length=len(beginning) + more))
    alone = cache.match(prefix_of(prompt[:cut]))

    assert found.cached_tokens <= len(beginning)
    if paged:
        assert alone.cached_tokens <= found.cached_tokens
        assert alone.evicted_reuse <= found.evicted_reuse
