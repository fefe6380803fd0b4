"""The paged cache, by examples; tests/property/ compares it with a naive model."""

from __future__ import annotations

import numpy as np
import pytest

from prefold.prefix_index.block_lru import BlockLru
from prefold.prefix_index.prefix import Prefix

NOW = 0.0


def prompt(text: str, seed: int = 1) -> Prefix:
    """A token for each letter."""
    return Prefix.of_tokens(np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32), seed)


def cache_with(*texts: str, blocks: int = 100) -> BlockLru:
    """Blocks of two letters; each text was computed, in this order."""
    cache = BlockLru(2 * blocks, 2)
    for text in texts:
        cache.finish(cache.begin(prompt(text), NOW), NOW)
    return cache


def known(cache: BlockLru, text: str) -> int:
    """Tokens known of a text, not regarding that its last one would be recomputed."""
    return cache.match(prompt(text + "~~")).cached_tokens


@pytest.mark.parametrize(("capacity", "block"), [(0, 16), (15, 16), (16, 0)])
def test_no_room_for_a_block(capacity: int, block: int) -> None:
    """A cache that can hold nothing is a mistake in the settings."""
    with pytest.raises(ValueError, match="no block"):
        BlockLru(capacity, block)


@pytest.mark.parametrize(
    ("text", "matched"),
    [("aabbcc", 4), ("aabbccd", 6), ("aabbx", 4), ("aab", 2), ("aa", 0), ("xabbcc", 0), ("", 0)],
)
def test_match_is_whole_blocks_but_never_the_last_token(text: str, matched: int) -> None:
    """vLLM recomputes at least one token, hence the block that holds the last one."""
    assert cache_with("aabbcc").match(prompt(text)).cached_tokens == matched


def test_namespaces_share_nothing() -> None:
    """The same tokens under another seed are another prompt."""
    cache = cache_with("aabbcc")
    assert cache.match(prompt("aabbcc", seed=2)).cached_tokens == 0


def test_burst_sees_itself() -> None:
    """What has begun is believed at once."""
    cache = BlockLru(100, 2)
    first = cache.begin(prompt("aabbc"), NOW)
    second = cache.begin(prompt("aabbc"), NOW)
    assert (first.cached_tokens, second.cached_tokens) == (0, 4)


def test_tails_of_the_oldest_go_first() -> None:
    """Room is made block by block from the end of what was used longest ago."""
    cache = cache_with("aabbcc", "xxyyzz", blocks=6)
    assert cache.match(prompt("ppqq")).evicted_reuse == 4
    cache.begin(prompt("ppqq"), NOW)
    assert (known(cache, "aabbcc"), known(cache, "xxyyzz")) == (2, 6)


def test_a_shared_head_is_as_young_as_its_youngest_tail() -> None:
    """Using one continuation keeps the head, not the other continuations."""
    cache = cache_with("aabb", "aacc", "xxyy", "aacc", blocks=5)
    cache.begin(prompt("pp"), NOW)
    assert (known(cache, "aabb"), known(cache, "aacc"), known(cache, "xxyy")) == (2, 4, 4)
    cache.begin(prompt("qqrr"), NOW)
    assert (known(cache, "aacc"), known(cache, "xxyy")) == (4, 0)


def test_using_a_head_does_not_renew_its_tail() -> None:
    """Only what the shorter prompt used becomes young."""
    cache = cache_with("aabbcc", "xxyy", "aab", blocks=5)
    cache.begin(prompt("pp"), NOW)
    assert (known(cache, "aabbcc"), known(cache, "xxyy")) == (4, 4)


def test_evicts_counts_what_is_lost_now() -> None:
    """Nothing while there is room or all is known; else what the new blocks push out."""
    cache = cache_with("aabbcc", blocks=4)
    assert [
        cache.match(prompt(text)).evicted_reuse for text in ("xx", "aabbcc", "xxyy", "aaxxyy")
    ] == [
        0,
        0,
        2,
        2,
    ]
    assert cache.match(prompt("xxyyzzppqqrr")).evicted_reuse == 6


def test_prompt_larger_than_the_cache_keeps_its_head() -> None:
    """Tails are evicted first, its own too."""
    cache = cache_with("xx", "aabbccddee", blocks=3)
    assert (known(cache, "aabbccddee"), known(cache, "xx")) == (6, 0)
    assert cache.size_tokens == cache.capacity_tokens == 6


def test_finish_touches() -> None:
    """A request's blocks are as old as its end, as vLLM frees them then."""
    cache = BlockLru(8, 2)
    slow = cache.begin(prompt("aabb"), NOW)
    cache.finish(cache.begin(prompt("xxyy"), NOW), NOW)
    cache.finish(slow, NOW)
    cache.begin(prompt("pp"), NOW)
    assert (known(cache, "aabb"), known(cache, "xxyy")) == (4, 2)


def test_not_computed_is_not_believed() -> None:
    """What a failed request added goes; what was there before stays."""
    cache = cache_with("aabb")
    failed = cache.begin(prompt("aabbccdd"), NOW)
    assert known(cache, "aabbccdd") == 8
    cache.finish(failed, NOW, computed=False)
    assert known(cache, "aabbccdd") == 4
    assert cache.size_tokens == 4


def test_not_computed_keeps_what_another_has_computed() -> None:
    """The same prompt succeeded meanwhile."""
    cache = BlockLru(100, 2)
    failed, computed = cache.begin(prompt("aabb"), NOW), cache.begin(prompt("aabb"), NOW)
    cache.finish(computed, NOW)
    cache.finish(failed, NOW, computed=False)
    assert known(cache, "aabb") == 4


def test_not_computed_leaves_what_another_still_promises() -> None:
    """The one that began first is still computing it; the one that counted on that has failed."""
    cache = BlockLru(100, 2)
    cache.begin(prompt("aabb"), NOW)
    cache.finish(cache.begin(prompt("aabbcc"), NOW), NOW, computed=False)
    assert known(cache, "aabbcc") == 4


def test_burst_that_fails_leaves_nothing() -> None:
    """In whatever order they fail, and although they reused each other's promises."""
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1)):
        cache = BlockLru(100, 2)
        texts = ("aabb", "aabbcc", "aabbdd")
        placements = [cache.begin(prompt(text), NOW) for text in texts]
        for number in order:
            cache.finish(placements[number], NOW, computed=False)
        assert cache.size_tokens == 0


def test_finish_is_once_and_only_for_its_own_era() -> None:
    """Repeated, or after a clear, it changes nothing."""
    cache = BlockLru(100, 2)
    done, late = cache.begin(prompt("aabb"), NOW), cache.begin(prompt("xxyy"), NOW)
    cache.finish(done, NOW)
    cache.finish(done, NOW, computed=False)
    assert known(cache, "aabb") == 4
    cache.clear()
    cache.finish(late, NOW)
    assert cache.size_tokens == 0


def test_conversation_stays_one_run() -> None:
    """Turns that extend each other are merged, so that a long one is not a long walk."""
    text, cache = "", BlockLru(1000, 2)
    for turn in range(50):
        text += chr(200 + turn) * 4
        cache.finish(cache.begin(prompt(text), NOW), NOW)
    assert "1 runs" in repr(cache)
    assert known(cache, text) == 200


def test_ready_keys_of_a_trace() -> None:
    """A trace's blocks are used as they are, if they are of the cache's size."""
    cache = BlockLru(10 * 512, 512)
    cache.begin(Prefix.of_blocks([1, 2, 3], 512, 1100), NOW)
    assert cache.match(Prefix.of_blocks([1, 2, 9], 512, 1536)).cached_tokens == 1024
    with pytest.raises(ValueError, match="no blocks"):
        cache.match(Prefix.of_blocks([1, 2], 16, 32))
