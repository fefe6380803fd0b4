from __future__ import annotations

import numpy as np

from prefold.prefix_index.aged_events import AgedEvents
from prefold.prefix_index.block_lru import BlockLru
from prefold.prefix_index.event_cache import EventCache
from prefold.prefix_index.index import NOTHING
from prefold.prefix_index.prefix import Prefix
from prefold.prefix_index.reuse import REFIT, ReuseEstimate

BLOCK = 4


def prompt(start: int, blocks: int) -> Prefix:
    return Prefix.of_tokens(np.arange(start, start + blocks * BLOCK, dtype=np.uint32), 0)


def stored(events: EventCache, start: int, blocks: int) -> None:
    tokens = np.arange(start, start + blocks * BLOCK, dtype=np.uint32)
    events.stored(list(range(start, start + blocks)), None, tokens, BLOCK)


def trusted(blocks: int) -> EventCache:
    events = EventCache(
        block_tokens=BLOCK, capacity_tokens=blocks * BLOCK, seed_of=lambda adapter, salt: 0
    )
    events.trust()
    events.void(complete=True)
    return events


def test_what_is_held_is_the_events_to_say() -> None:
    """The guess believes what was sent; without an event after that, the promise is the events'."""
    events = trusted(8)
    cache = AgedEvents(events, BlockLru(8 * BLOCK, BLOCK))
    placement = cache.begin(prompt(100, 3), 1.0)
    cache.finish(placement, 2.0, computed=False)

    assert cache.match(prompt(100, 3)).cached_tokens == 0
    stored(events, 100, 3)
    assert cache.match(prompt(100, 3)).cached_tokens == 2 * BLOCK
    assert (cache.size_tokens, cache.capacity_tokens) == (3 * BLOCK, 8 * BLOCK)


def test_what_an_eviction_costs_is_the_guess() -> None:
    """Blocks that nobody comes back for are worth nothing, and those are what would go."""
    reuse = ReuseEstimate()
    for _ in range(REFIT):
        reuse.evicted(1, 60.0, 1)
    events = trusted(4)
    cache = AgedEvents(events, BlockLru(4 * BLOCK, BLOCK, reuse=reuse))
    stored(events, 100, 4)
    cache.finish(cache.begin(prompt(100, 4), 0.0), 0.0)
    reuse.now = 50.0

    assert events.match(prompt(200, 3)).evicted_reuse == 3 * BLOCK
    assert cache.match(prompt(200, 3)).evicted_reuse == 0


def test_with_room_nothing_is_lost_whatever_the_guess() -> None:
    """The engine dropped its cache, and said so; the guess does not know it."""
    events = trusted(4)
    cache = AgedEvents(events, BlockLru(4 * BLOCK, BLOCK))
    cache.finish(cache.begin(prompt(100, 4), 0.0), 0.0)
    stored(events, 100, 4)
    events.cleared()

    assert cache.match(prompt(200, 4)) == NOTHING


def test_late_ends_are_harmless() -> None:
    """Twice, and after a clear."""
    cache = AgedEvents(trusted(4), BlockLru(4 * BLOCK, BLOCK))
    placement = cache.begin(prompt(100, 2), 0.0)
    cache.clear()
    cache.finish(placement, 1.0)
    cache.finish(placement, 1.0)

    assert cache.match(prompt(100, 2)) == NOTHING
