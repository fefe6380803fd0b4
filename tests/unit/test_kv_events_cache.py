"""A cache model of KV events: what is matched, promised, refused and believed after a gap."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest

from prefold.prefix_index.event_cache import EventCache
from prefold.prefix_index.index import NOTHING, CacheModel
from prefold.prefix_index.prefix import Prefix, namespace_seed
from prefold.prefix_index.promises import GRACE_S

BLOCK = 4


def seed_of(adapter: str | None, salt: str | None) -> int:
    return namespace_seed(b"secret", model="", adapter=adapter, cache_salt=salt, tenant=None)


def prompt(tokens: Sequence[int], *, adapter: str | None = None, salt: str | None = None) -> Prefix:
    return Prefix.of_tokens(np.array(tokens, dtype=np.uint32), seed_of(adapter, salt))


def cache_of(blocks: int = 8, *, complete: bool = True) -> EventCache:
    cache = EventCache(block_tokens=BLOCK, capacity_tokens=blocks * BLOCK, seed_of=seed_of)
    cache.void(complete=complete)
    cache.trust()
    return cache


def store(
    cache: EventCache,
    tokens: Sequence[int],
    handles: Sequence[int | bytes],
    parent: int | bytes | None = None,
    *,
    host: bool = False,
    adapter: str | None = None,
    salt: str | None = None,
    foreign: Sequence[bytes] | None = None,
) -> None:
    cache.stored(
        handles,
        parent,
        np.array(tokens, dtype=np.uint32),
        BLOCK,
        host=host,
        adapter=adapter,
        salt=salt,
        foreign=foreign,
    )


def cached(cache: CacheModel, tokens: Sequence[int]) -> int:
    """With one token more, or the last block would not count."""
    return cache.match(prompt([*tokens, 99])).cached_tokens


def test_blocks_are_found_by_their_tokens_and_lost_by_their_handles() -> None:
    """In whole blocks, up to the first that is missing, and never the last token."""
    cache = cache_of()
    store(cache, range(8), [101, 102])
    store(cache, range(8, 12), [b"third"], 102)
    assert cached(cache, range(12)) == 12
    assert cached(cache, range(11)) == 8
    assert cache.match(prompt(range(12))).cached_tokens == 8
    assert cached(cache, range(1, 12)) == 0
    cache.removed([102])
    assert cached(cache, range(12)) == 4
    assert cache.size_tokens == 8
    store(cache, range(4, 8), [102], 101)
    assert cached(cache, range(12)) == 12


def test_salts_and_adapters_part_blocks() -> None:
    """What was stored with one is not matched without it, nor with another."""
    cache = cache_of()
    store(cache, range(8), [1, 2], salt="tenant1")
    store(cache, range(4), [3], adapter="french")
    assert cache.match(prompt(range(9), salt="tenant1")).cached_tokens == 8
    assert cache.match(prompt(range(9), adapter="french")).cached_tokens == 4
    for other in (prompt(range(9)), prompt(range(9), salt="t"), prompt(range(9), adapter="t")):
        assert cache.match(other).cached_tokens == 0


def test_foreign_keys_match_nothing_from_there_on() -> None:
    """The tokens of an image are placeholders that other prompts may have, too."""
    cache = cache_of()
    store(cache, range(12), [1, 2, 3], foreign=[b"", b"image", b""])
    store(cache, range(12, 16), [4], 3)
    assert cached(cache, range(16)) == 4
    store(cache, range(12), [1, 5, 6], foreign=[b"", b"other", b""])
    cache.removed([2, 3, 4])
    assert cache.size_tokens == 12


def test_copies_are_counted() -> None:
    """An engine that computed a block twice evicts it twice."""
    cache = cache_of()
    store(cache, range(4), [1])
    store(cache, range(4), [1])
    cache.removed([1])
    assert cached(cache, range(4)) == 4
    cache.removed([1])
    assert cached(cache, range(4)) == 0
    cache.removed([1])
    store(cache, range(4), [1])
    assert cached(cache, range(4)) == 4


def test_host_memory_goes_on_where_the_device_ends() -> None:
    """Loading is no prefill. But what is on the device behind that is not reached."""
    cache = cache_of()
    store(cache, range(16), [1, 2, 3, 4])
    store(cache, range(4, 8), [2], 1, host=True)
    cache.removed([2])
    assert cached(cache, range(16)) == 8
    cache.copied_to_host([3, 77])
    assert cached(cache, range(16)) == 12
    cache.removed([2], host=True)
    assert cached(cache, range(16)) == 4
    cache.removed([3], host=True)
    assert cache.size_tokens == 12


def test_blocks_behind_unknown_ones_are_counted_and_passed_over() -> None:
    """Without its parent there is no key for a block; its removal is nothing new then."""
    cache = cache_of()
    store(cache, range(8), [5, 6], 4)
    cache.removed([5])
    assert cache.orphans == 2
    assert cache.size_tokens == 0


def test_a_burst_sees_itself_until_events_say_how_it_is() -> None:
    """Promised at begin, kept by an event, and gone with the block."""
    cache = cache_of()
    placement = cache.begin(prompt(range(9)), 0.0)
    assert placement.cached_tokens == 0
    assert cached(cache, range(8)) == 8
    assert cache.begin(prompt(range(9)), 0.0).cached_tokens == 8
    store(cache, range(8), [1, 2])
    cache.removed([2])
    assert cached(cache, range(8)) == 4


def test_a_promise_ends_with_its_request_or_a_grace_after_it() -> None:
    """At once if it was not computed; else its events have a while to come."""
    cache = cache_of()
    failed, done = cache.begin(prompt(range(9)), 0.0), cache.begin(prompt(range(5)), 0.0)
    cache.finish(failed, 1.0, computed=False)
    assert cached(cache, range(8)) == 4
    cache.finish(done, 1.0)
    cache.finish(done, 1.0, computed=False)
    other = cache.begin(prompt(range(50, 54)), 1.0 + GRACE_S / 2)
    assert cached(cache, range(8)) == 4
    cache.finish(other, 1.0 + GRACE_S, computed=False)
    assert cached(cache, range(8)) == 0


def test_what_is_evicted_is_what_has_no_room() -> None:
    """Blocks on the device and promised ones count, as copies; more than all cannot go."""
    cache = cache_of(4)
    assert cache.match(prompt(range(16))).evicted_reuse == 0
    store(cache, range(8), [1, 2])
    assert cache.match(prompt(range(12))).evicted_reuse == 0
    assert cache.match(prompt(range(100, 112))).evicted_reuse == 4
    assert cache.match(prompt(range(100, 200))).evicted_reuse == 8
    cache.begin(prompt(range(50, 58)), 0.0)
    assert cache.match(prompt(range(100, 104))).evicted_reuse == 4
    cache.removed([2])
    assert cache.match(prompt(range(100, 104))).evicted_reuse == 0


def test_nothing_is_claimed_while_events_may_be_missing() -> None:
    """With a reason; what is known is kept, and told again once nothing is missing."""
    cache = cache_of()
    store(cache, range(8), [1, 2])
    cache.distrust("a gap")
    assert cache.problem == "a gap"
    assert cache.match(prompt(range(9))) == NOTHING
    store(cache, range(8, 12), [3], 2)
    cache.trust()
    assert cached(cache, range(12)) == 12


def test_an_incomplete_history_claims_nothing_until_it_is_complete() -> None:
    """By a reset, or when all of the cache was stored anew with no old prefix still in use."""
    cache = cache_of(4, complete=False)
    assert "before" in cache.problem
    for handle in range(3):
        store(cache, range(handle * 4, handle * 4 + 4), [handle])
        cache.removed([handle])
    assert cache.match(prompt(range(5))) == NOTHING
    store(cache, range(4), [90], 80)
    for handle in range(4):
        assert cache.problem
        store(cache, range(handle * 4, handle * 4 + 4), [handle])
    assert cache.problem == ""
    cache.void(complete=False)
    assert cache.problem
    cache.cleared()
    assert cache.problem == ""
    assert cache.size_tokens == 0


def test_a_cache_that_is_not_understood_is_refused_until_the_engine_begins_anew() -> None:
    """Whatever its events say meanwhile; a gap changes nothing about it."""
    cache = cache_of()
    store(cache, range(8), [1, 2])
    cache.refuse("sliding windows")
    cache.void(complete=False)
    cache.trust()
    store(cache, range(8), [1, 2])
    assert cache.problem == "sliding windows"
    assert cache.match(prompt(range(9))) == NOTHING
    assert cache.size_tokens == 0
    cache.void(complete=True)
    assert cache.problem == ""


def test_other_block_sizes_are_refused() -> None:
    """The engine's own figures and its events do not speak of the same blocks."""
    cache = cache_of()
    cache.stored([1], None, np.arange(8, dtype=np.uint32), 8)
    assert "8 tokens" in cache.problem


def test_counts_that_do_not_fit_are_an_error() -> None:
    """Of tokens, and of keys."""
    cache = cache_of()
    with pytest.raises(ValueError, match="tokens"):
        store(cache, range(7), [1, 2])
    with pytest.raises(ValueError, match="keys"):
        store(cache, range(8), [1, 2], foreign=[b""])
    with pytest.raises(ValueError, match="fits"):
        EventCache(block_tokens=16, capacity_tokens=15, seed_of=seed_of)


@pytest.mark.parametrize("host", [False, True])
def test_memory_is_bounded_by_what_the_engine_can_hold(host: bool) -> None:
    """One that only ever stores is not believed, and forgotten."""
    cache = cache_of(4)
    stored = 0
    while not cache.problem and stored < 1000:
        store(cache, range(stored, stored + 4), [stored], host=host)
        stored += 1
    assert "more than it has room for" in cache.problem
    assert cache.size_tokens == 0
    assert stored <= 4 * 16 + 1


def test_what_came_and_was_cleared_is_not_promised_any_more() -> None:
    """What is still to come is: its request may be computing."""
    cache = cache_of()
    for tokens in (range(5), range(50, 55)):
        cache.finish(cache.begin(prompt(tokens), 0.0), 0.0)
    store(cache, range(4), [1])
    cache.cleared()
    assert cached(cache, range(4)) == 0
    assert cached(cache, range(50, 54)) == 4


def test_a_clear_forgets_promises_and_late_ends() -> None:
    """A request that began before it is not known any more; what events said stays true."""
    cache = cache_of()
    placement = cache.begin(prompt(range(9)), 0.0)
    store(cache, range(4), [1])
    assert cached(cache, range(8)) == 8
    cache.clear()
    assert cached(cache, range(8)) == 4
    cache.begin(prompt(range(9)), 0.0)
    cache.finish(placement, 1.0, computed=False)
    assert cached(cache, range(8)) == 8


def test_a_million_tokens_cost_less_than_sixteen_megabytes() -> None:
    """In blocks of 16, with 64-bit handles: what the documentation states."""
    block, blocks = 16, 1_000_000 // 16
    cache = EventCache(block_tokens=block, capacity_tokens=block * blocks, seed_of=seed_of)
    rng = np.random.default_rng(1)
    tracemalloc.start()
    try:
        for _ in range(blocks // 125):
            handles = rng.integers(2**63, size=125).tolist()
            tokens = rng.integers(2**17, size=125 * block).astype(np.uint32)
            cache.stored(handles, None, tokens, block)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert cache.size_tokens == blocks * block
    print(f"{used / 1e6:.1f} MB for {cache.size_tokens} tokens")
    assert used < 16e6
