"""Backends that come, go and lose their cache."""

from __future__ import annotations

import numpy as np
import pytest

from prefold.prefix_index.block_lru import BlockLru
from prefold.prefix_index.index import CacheModel, PrefixIndex, PrefixMatch
from prefold.prefix_index.prefix import Prefix
from prefold.prefix_index.slots import SlotCache

PROMPT = Prefix.of_tokens(np.arange(100, dtype=np.uint32), 1)


def blocks() -> CacheModel:
    return BlockLru(1600, 16)


def slots() -> CacheModel:
    return SlotCache(2, 1000)


@pytest.fixture(params=[blocks, slots])
def cache(request: pytest.FixtureRequest) -> CacheModel:
    made: CacheModel = request.param()
    return made


def index_with(**caches: CacheModel) -> PrefixIndex:
    index = PrefixIndex()
    for name, cache in caches.items():
        index.set_cache(name, cache)
    return index


def test_match_for_each_backend_asked() -> None:
    """Each by its own cache; a backend nobody knows holds nothing and evicts nothing."""
    index = index_with(a=blocks(), b=slots(), c=slots())
    for name in ("a", "b"):
        placement = index.begin(name, PROMPT, 0.0)
        assert placement is not None
        index.finish(name, placement, 1.0)
    assert index.match(PROMPT, "a") == PrefixMatch(cached_tokens=96, evicted_reuse=0)
    assert index.match(PROMPT, "b") == PrefixMatch(cached_tokens=99, evicted_reuse=0)
    assert index.match(PROMPT, "unknown") == PrefixMatch(cached_tokens=0, evicted_reuse=0)


def test_unknown_backend_places_nothing() -> None:
    """There is nothing to finish, and taking it out or clearing it is no error."""
    index = PrefixIndex()
    assert index.begin("unknown", PROMPT, 0.0) is None
    index.remove("unknown")
    index.clear("unknown")


def test_clear_forgets_what_is_held(cache: CacheModel) -> None:
    """The model of the cache stays, empty."""
    index = index_with(a=cache)
    index.begin("a", PROMPT, 0.0)
    index.clear("a")
    assert index.match(PROMPT, "a") == PrefixMatch(0, 0)
    assert index.begin("a", PROMPT, 1.0) is not None


@pytest.mark.parametrize("computed", [True, False])
def test_late_finish_after_the_backend_changed(cache: CacheModel, computed: bool) -> None:
    """Cleared, replaced by either kind, or removed meanwhile: nothing is believed, nothing breaks,
    and the placements of the new cache are not touched."""
    index = index_with(a=cache)
    placement = index.begin("a", PROMPT, 0.0)
    assert placement is not None
    index.clear("a")
    index.finish("a", placement, 1.0, computed=computed)
    assert index.match(PROMPT, "a").cached_tokens == 0
    for replacement in (blocks(), slots()):
        late = index.begin("a", PROMPT, 2.0)
        assert late is not None
        index.set_cache("a", replacement)
        current = index.begin("a", PROMPT, 3.0)
        assert current is not None
        index.finish("a", late, 4.0, computed=computed)
        assert replacement.size_tokens > 0
        index.finish("a", current, 5.0)
        assert index.match(PROMPT, "a").cached_tokens >= 96
    index.remove("a")
    index.finish("a", placement, 6.0, computed=computed)
    assert index.match(PROMPT, "a") == PrefixMatch(0, 0)


def test_failed_request_is_not_believed(cache: CacheModel) -> None:
    """Refused before it reached the engine: the next one must not go there for its prefix."""
    index = index_with(a=cache)
    placement = index.begin("a", PROMPT, 0.0)
    assert placement is not None
    index.finish("a", placement, 1.0, computed=False)
    assert index.match(PROMPT, "a").cached_tokens == 0


def test_repr_shows_how_full_and_nothing_of_prompts() -> None:
    """For logs: names and token counts."""
    index = index_with(a=blocks(), b=slots())
    index.begin("a", PROMPT, 0.0)
    assert repr(index) == "<PrefixIndex tokens held {a: 96/1600, b: 0/2000}>"
