"""What reports teach a paged cache model, by examples; tests/property/ has an engine beside it."""

from __future__ import annotations

import numpy as np
import pytest

from prefold.prefix_index.block_lru import BlockLru
from prefold.prefix_index.emptying import TIMES
from prefold.prefix_index.index import RIGHT, Correction
from prefold.prefix_index.prefix import Prefix
from prefold.prefix_index.room import Room

BLOCK = 2
NOW = 0.0


def prompt(text: str) -> Prefix:
    """A token for each letter."""
    return Prefix.of_tokens(np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32), 1)


def serve(cache: BlockLru, text: str, reported: int | None = None) -> Correction:
    """Begun, reported on (as expected, if nothing else is said), finished."""
    placement = cache.begin(prompt(text), NOW)
    told = placement.cached_tokens if reported is None else reported
    made = cache.correct(placement, told, NOW)
    cache.finish(placement, NOW)
    return made


def cache_with(*texts: str, blocks: int = 100, most: int | None = None) -> BlockLru:
    cache = BlockLru(BLOCK * blocks, BLOCK, most_tokens=None if most is None else BLOCK * most)
    for text in texts:
        serve(cache, text)
    return cache


def known(cache: BlockLru, *texts: str) -> list[int]:
    """Tokens that a longer prompt would find."""
    return [cache.match(prompt(text + "~~")).cached_tokens for text in texts]


TEXTS = "aabbcc", "ddeeff", "gghhii", "jjkkll"


def test_what_is_older_than_what_was_lost_is_gone_too() -> None:
    """In an LRU nothing that was used before it can have stayed; what was used after it may."""
    cache = cache_with(*TEXTS)
    made = serve(cache, "ddeeff__", 0)
    assert made.lost_tokens == 12
    assert known(cache, *TEXTS) == [0, 6, 6, 6], "the prompt itself was computed meanwhile"
    assert cache.size_tokens == 3 * 6 + 2


def test_of_a_prompt_half_lost_its_own_head_tells_nothing_of_others_heads() -> None:
    """What was found of it is younger than what was not: only what is older than that goes."""
    cache = cache_with("aabbcc", "aabbdd", "eeffgg")
    assert serve(cache, "aabbdd__", 2).lost_tokens == 4 + 2
    assert known(cache, "aabbcc", "aabbdd", "eeffgg") == [4, 6, 6]


def test_what_was_found_again_brings_back_all_that_is_younger() -> None:
    """A report that showed too much to be lost is undone by one that shows something older."""
    cache = cache_with(*TEXTS)
    serve(cache, "jjkkll__", 0)
    assert known(cache, *TEXTS) == [0, 0, 0, 6]
    made = serve(cache, "ddeeff__", 6)
    assert made.found_tokens == 12
    assert known(cache, *TEXTS) == [0, 6, 6, 6]


@pytest.mark.parametrize("off", [-BLOCK, -1, 1, BLOCK])
def test_a_block_more_or_less_is_rounding(off: int) -> None:
    """Nothing is learned, and nobody is told."""
    cache = cache_with(*TEXTS)
    assert serve(cache, "aabbcc__", 6 + off) is RIGHT
    assert cache.size_tokens == 4 * 6 + 2


def test_what_others_are_computing_is_not_lost() -> None:
    """Of a burst the second finds less than the first was to compute: it was too early."""
    cache = cache_with("xxyyzz")
    first, second = cache.begin(prompt("aabbccdd"), NOW), cache.begin(prompt("aabbccdd"), NOW)
    assert second.cached_tokens == 6
    assert cache.correct(second, 0, NOW) is RIGHT
    cache.finish(first, NOW)
    assert known(cache, "xxyyzz", "aabbccdd") == [6, 8]


def test_requests_in_flight_vouch_for_what_they_use() -> None:
    """Their blocks are pinned in the engine, and with them all that is before them."""
    cache = cache_with("aabbcc")
    cache.begin(prompt("aabbddee"), NOW)
    serve(cache, "jjkkll")
    serve(cache, "jjkkll__", 0)
    assert known(cache, "aabbcc", "aabbddee") == [4, 8]


def test_what_reached_the_engine_by_another_way_teaches_nothing_of_its_size() -> None:
    """More than was ever known of the prompt is not found again."""
    cache = cache_with("aabbcc", blocks=6)
    assert serve(cache, "ddeeffgghh", 8) is RIGHT
    assert cache.capacity_tokens == 12


def test_a_cache_that_is_smaller_than_stated_is_found_to_be() -> None:
    """Its size comes down to what was used between a prompt and its loss, and no further."""
    cache = BlockLru(BLOCK * 100, BLOCK)
    texts = [chr(200 + number) * 8 for number in range(12)]  # 4 blocks each
    for _ in range(12):
        for text in texts:
            serve(cache, text + "~", 0)
    assert 44 <= cache.capacity_tokens // BLOCK <= 46
    assert cache.size_tokens <= cache.capacity_tokens


def test_a_capacity_that_was_a_guess_grows_by_what_is_found() -> None:
    """But not above the bound; what was stated by the engine does not grow at all."""
    for most, text, grown in ((None, "gghhii", 4), (6, "gghhii", 6), (100, "aabbcc", 12)):
        cache = cache_with(*TEXTS, blocks=4, most=most)
        serve(cache, text + "__", 6)
        assert cache.capacity_tokens // BLOCK == grown, most


def test_a_flush_is_seen_by_what_was_used_last() -> None:
    """Three requests in a row find nothing of it: then nothing from before the first is believed,
    and what came since is. The size that was learned stays, nearly."""
    texts = [chr(200 + number) * 8 for number in range(6)]
    cache = cache_with(*texts, blocks=1000)
    made = [serve(cache, text + "~", 0) for text in texts[:TIMES]]
    assert [one.emptied for one in made] == [False, False, True]
    assert known(cache, *texts) == [8, 8, 8, 0, 0, 0]
    assert cache.capacity_tokens > 1000


def test_one_hit_from_before_says_that_it_was_no_flush() -> None:
    """However many prompts find nothing around it."""
    texts = [chr(200 + number) * 8 for number in range(9)]
    cache = cache_with(*texts, blocks=1000)
    for number in range(0, 9, 3):
        assert not serve(cache, texts[number] + "~", 0).emptied
        assert not serve(cache, texts[number + 1] + "~", 0).emptied
        serve(cache, texts[number + 2] + "~", 8)


def test_what_was_doubted_is_forgotten_in_the_end() -> None:
    """All that is remembered stays within the bound."""
    cache = cache_with(*TEXTS, blocks=12)
    serve(cache, "jjkkll__", 0)
    assert (cache.size_tokens, cache.doubted_tokens) == (8, 16)
    for number in range(20):
        serve(cache, chr(300 + number) * 6)
        assert cache.size_tokens + cache.doubted_tokens <= 24


def test_a_correction_is_once_and_only_for_its_own_era() -> None:
    """Repeated, or after a clear, it changes nothing."""
    cache = cache_with(*TEXTS)
    placement = cache.begin(prompt("ddeeff__"), NOW)
    assert cache.correct(placement, 0, NOW) is not RIGHT
    assert cache.correct(placement, 0, NOW) is RIGHT
    late = cache.begin(prompt("jjkkll__"), NOW)
    cache.clear()
    assert cache.correct(late, 0, NOW) is RIGHT


def test_one_odd_report_does_not_move_the_size() -> None:
    """Two that agree do, by a quarter of the way; a find does at once."""
    room = Room(100, 200)
    room.lost(20)
    assert room.blocks == 100
    room.lost(40)
    assert room.blocks == 85
    room.lost(60)
    assert room.blocks == 79
    room.found(150)
    assert room.blocks == 150
    room.found(900)
    assert room.blocks == 200
