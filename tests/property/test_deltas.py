"""Indexes that tell each other what is placed, against one index that sees everything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.prefix_index.block_lru import BlockLru
from prefold.prefix_index.deltas import Delta, Finished, Journal, Placed, SharedIndex, placed
from prefold.prefix_index.index import CacheModel, Placement, PrefixIndex
from prefold.prefix_index.prefix import Prefix
from prefold.prefix_index.slots import SlotCache

BLOCK = 4
BACKENDS = ("a", "b")
PEERS = 3
MAKE: dict[str, tuple[Callable[[], CacheModel], int]] = {
    "blocks": (lambda: BlockLru(capacity_tokens=10 * BLOCK, block_tokens=BLOCK), BLOCK),
    "slots": (lambda: SlotCache(slots=3, context_tokens=40), 1),
}
talks = st.builds(
    lambda talk, turn, end: (*((0,) * 6 + (talk,) * 24)[: turn * 3], *end),
    st.integers(0, 3),
    st.integers(0, 8),
    st.lists(st.integers(0, 3), max_size=5),
)
ends = st.sampled_from(["computed", "open", "failed"])
steps = st.lists(
    st.tuples(
        st.integers(0, PEERS - 1),
        st.sampled_from(BACKENDS),
        talks,
        ends,
        st.booleans(),
    ),
    max_size=25,
)


def prefix_of(prompt: tuple[int, ...]) -> Prefix:
    return Prefix.of_tokens(np.array(prompt, dtype=np.uint32), 7)


@dataclass
class Fleet:
    """One index that sees all, and some that are told by each other without delay."""

    kind: str
    reports: bool = False
    """Answers report any number of cached tokens, and have some themselves."""
    said: list[tuple[int, Delta]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.whole = PrefixIndex()
        self.peers = [SharedIndex(self._teller(n), lambda backend: None) for n in range(PEERS)]
        for index in (self.whole, *self.peers):
            for backend in BACKENDS:
                self.give_cache(index, backend)
        self.under_way: list[tuple[int, str, Placement, Placement]] = []

    def give_cache(self, index: PrefixIndex, backend: str) -> None:
        make, block = MAKE[self.kind]
        index.set_cache(backend, make(), block)

    def _teller(self, source: int) -> Callable[[Callable[[], Delta]], None]:
        def tell(make: Callable[[], Delta]) -> None:
            delta = make()
            self.said.append((source, delta))
            for other, index in enumerate(self.peers):
                if other != source:
                    index.take_in(source, delta, len(self.said))

        return tell

    def begin(self, peer: int, backend: str, prompt: tuple[int, ...]) -> None:
        now = float(len(self.said))
        ours = self.peers[peer].begin(backend, prefix_of(prompt), now)
        all_of_it = self.whole.begin(backend, prefix_of(prompt), now)
        assert ours is not None
        assert all_of_it is not None
        assert ours.cached_tokens == all_of_it.cached_tokens
        self.under_way.append((peer, backend, ours, all_of_it))

    def finish(self, which: int, *, computed: bool) -> None:
        now = float(len(self.said))
        peer, backend, ours, all_of_it = self.under_way.pop(which)
        if self.reports and computed:
            length = ours.prefix.length
            cached = len(self.said) * 7 % (length + 1)
            for index, placement in ((self.peers[peer], ours), (self.whole, all_of_it)):
                index.correct(backend, placement, cached, now, generated_tokens=length % 5)
        self.peers[peer].finish(backend, ours, now, computed=computed)
        self.whole.finish(backend, all_of_it, now, computed=computed)

    def play(self, made: list[tuple[int, str, tuple[int, ...], str, bool]]) -> None:
        for peer, backend, prompt, end, oldest_first in made:
            self.begin(peer, backend, prompt)
            if end != "open":
                self.finish(0 if oldest_first else -1, computed=end == "computed")


@pytest.mark.parametrize("kind", MAKE)
@given(made=steps, asked=talks, reports=st.booleans())
def test_every_index_believes_what_one_that_sees_all_would(
    kind: str,
    made: list[tuple[int, str, tuple[int, ...], str, bool]],
    asked: tuple[int, ...],
    reports: bool,
) -> None:
    """Whoever places what, however it ends, and whatever engines report of it."""
    fleet = Fleet(kind, reports=reports)
    fleet.play(made)
    for backend in BACKENDS:
        believed = fleet.whole.match(prefix_of(asked), backend)
        for index in fleet.peers:
            assert index.match(prefix_of(asked), backend) == believed
            assert index.size_tokens(backend) == fleet.whole.size_tokens(backend)


@given(made=steps, asked=talks)
def test_an_index_that_starts_later_learns_the_same_from_the_journal(
    made: list[tuple[int, str, tuple[int, ...], str, bool]], asked: tuple[int, ...]
) -> None:
    """Of a cache that keeps what was used last; evictions included, as long as nothing failed."""
    fleet = Fleet("blocks")
    fleet.play(
        [(*step[:3], "computed" if step[3] == "failed" else step[3], step[4]) for step in made]
    )
    journal = Journal(2**20)
    for source, delta in fleet.said:
        journal.note(source, delta)
    late = SharedIndex(lambda delta: None, lambda backend: None)
    for backend in BACKENDS:
        fleet.give_cache(late, backend)
        for source, deltas in journal.replay(backend):
            for delta in deltas:
                late.take_in(source, delta, 0.0)

        assert late.match(prefix_of(asked), backend) == fleet.whole.match(prefix_of(asked), backend)


@given(made=steps)
def test_nothing_of_a_peer_that_is_gone_stays_under_way(
    made: list[tuple[int, str, tuple[int, ...], str, bool]],
) -> None:
    """And the others' slots are free for others again."""
    fleet = Fleet("slots")
    fleet.play(made)
    survivor = fleet.peers[0]
    for gone in range(1, PEERS):
        survivor.forget(gone, 0.0)
    for peer, backend, ours, _ in fleet.under_way:
        if peer == 0:
            survivor.finish(backend, ours, 0.0)

    assert survivor.under_way() == 0
    assert "0 of 3 slots busy, 0 requests waiting" in repr(survivor._caches["a"])


@given(
    st.lists(st.tuples(st.integers(0, 2), talks, st.sampled_from(["open", "computed", "failed"])))
)
def test_the_journal_keeps_within_its_bound(
    made: list[tuple[int, tuple[int, ...], str]],
) -> None:
    """The latest placement stays, however large; what failed, and what was forgotten, does not."""
    journal = Journal(100)
    for number, (source, prompt, end) in enumerate(made):
        journal.note(source, placed("a", number, prefix_of(prompt), 1))
        kept = [delta for _, deltas in journal.replay("a") for delta in deltas]
        held = [delta for delta in kept if isinstance(delta, Placed)]
        assert sum(len(delta.units) for delta in held) <= 100 or len(held) == 1
        assert held[-1].number == number
        if end != "open":
            journal.note(source, Finished("a", number, end == "computed"))
        if end == "failed":
            kept = [delta for _, deltas in journal.replay("a") for delta in deltas]
            assert number not in [delta.number for delta in kept]
    for source in range(3):
        journal.forget(source)
    for _, deltas in journal.replay("a"):
        assert isinstance(deltas[-1], Finished)
    journal.clear("a")

    assert list(journal.replay("a")) == []


def test_units_that_are_not_what_they_should_be_change_nothing() -> None:
    """Another block size, a backend that is not known, keys that do not cover the prompt."""
    index = SharedIndex(lambda delta: None, lambda backend: None)
    index.set_cache("a", MAKE["blocks"][0](), BLOCK)
    good = placed("a", 1, prefix_of((1,) * 12), BLOCK)
    for wrong in (
        placed("a", 1, prefix_of((1,) * 12), 2),
        placed("x", 1, prefix_of((1,) * 12), BLOCK),
        Placed("a", 1, BLOCK, 12, 0, good.units[:8]),
        Placed("a", 1, BLOCK, 12, 0, good.units[:7]),
        Finished("a", 99, True),
    ):
        index.take_in(1, wrong, 0.0)
        assert index.size_tokens("a") == 0
    index.take_in(1, good, 0.0)

    assert index.size_tokens("a") == 12
