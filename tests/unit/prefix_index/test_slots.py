"""The slots of llama.cpp, by examples; tests/property/ compares them with a naive model."""

from __future__ import annotations

import numpy as np
import pytest

from prefold.prefix_index.prefix import Prefix
from prefold.prefix_index.slots import SlotCache


def prompt(text: str, seed: int = 1) -> Prefix:
    """A token for each letter."""
    return Prefix.of_tokens(np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32), seed)


def serve(cache: SlotCache, text: str, now: float) -> int:
    """Begun and finished; the tokens reused."""
    placement = cache.begin(prompt(text), now)
    cache.finish(placement, now)
    return placement.cached_tokens


@pytest.mark.parametrize(("slots", "context"), [(0, 10), (1, 0)])
def test_no_slots(slots: int, context: int) -> None:
    """A cache that can hold nothing is a mistake in the settings."""
    with pytest.raises(ValueError, match="no cache"):
        SlotCache(slots, context)


def test_reuse_is_to_the_token() -> None:
    """All that is common, except the last token of the prompt."""
    cache = SlotCache(1, 100)
    assert serve(cache, "abcdefgh", 1) == 0
    assert cache.match(prompt("abcdefgh")).cached_tokens == 7
    assert cache.match(prompt("abcdefghi")).cached_tokens == 8
    assert cache.match(prompt("abcxyz")).cached_tokens == 3
    assert cache.match(prompt("")).cached_tokens == 0


def test_a_slot_holds_one_sequence() -> None:
    """The next prompt replaces it: unlike a paged cache, nothing else is kept."""
    cache = SlotCache(1, 100)
    serve(cache, "abcdefgh", 1)
    assert cache.match(prompt("abcxyz")).evicted_reuse == 5
    serve(cache, "abcxyz", 2)
    assert cache.match(prompt("abcdefgh")).cached_tokens == 3
    assert cache.size_tokens == 6


def test_best_slot_if_similar_enough() -> None:
    """The longest common prefix, if it is more than a tenth of the prompt; else the one idle for
    longest, though what that has in common is reused too."""
    cache = SlotCache(3, 100)
    running = [cache.begin(prompt(text), 0) for text in ("aaaaaaaa", "abbbbbbb", "cccccccc")]
    for now, placement in enumerate(running):
        cache.finish(placement, now)
    assert cache.match(prompt("abbbx")).cached_tokens == 4
    assert cache.match(prompt("abbbx")).evicted_reuse == 4
    assert cache.match(prompt("c" + "x" * 8)).cached_tokens == 1
    assert cache.match(prompt("c" + "x" * 8)).evicted_reuse == 7
    assert (
        cache.match(prompt("c" + "x" * 9)).cached_tokens,
        cache.match(prompt("c" + "x" * 9)).evicted_reuse,
    ) == (0, 8)
    assert (
        cache.match(prompt("a" + "x" * 9)).cached_tokens,
        cache.match(prompt("a" + "x" * 9)).evicted_reuse,
    ) == (1, 7)


def test_free_slot_attracts_a_cold_prompt() -> None:
    """A slot never used counts as released before all others: nothing is evicted."""
    cache = SlotCache(2, 100)
    serve(cache, "abcdefgh", 1)
    assert cache.match(prompt("xyz")).evicted_reuse == 0
    serve(cache, "xyz", 2)
    assert cache.match(prompt("abcdefgh")).cached_tokens == 7
    assert cache.match(prompt("pqr")).evicted_reuse == 8


def test_recency_is_at_release() -> None:
    """The slot that ended last is the youngest, though it began first."""
    cache = SlotCache(2, 100)
    long, short = cache.begin(prompt("abcdefgh"), 1), cache.begin(prompt("xyzuvw"), 2)
    cache.finish(short, 3)
    cache.finish(long, 4)
    assert cache.match(prompt("123")).evicted_reuse == 6


def test_busy_slots_cannot_be_reused() -> None:
    """Two requests with one prefix at once go to two slots, and both pay."""
    cache = SlotCache(2, 100)
    first, second = cache.begin(prompt("abcdefgh"), 1), cache.begin(prompt("abcdefgh"), 1)
    assert (first.cached_tokens, second.cached_tokens) == (0, 0)
    assert cache.size_tokens == 16


def test_all_busy_waits_for_the_first_released() -> None:
    """It expects the best of all slots, and takes the one that is released."""
    cache = SlotCache(2, 100)
    alpha, beta = cache.begin(prompt("aaaaaaaa"), 1), cache.begin(prompt("bbbbbbbb"), 1)
    waiting = cache.begin(prompt("aaaaaaaac"), 2)
    assert waiting.cached_tokens == 8
    assert "1 requests waiting" in repr(cache)
    cache.finish(beta, 3)
    assert "2 of 2 slots busy, 0 requests waiting" in repr(cache)
    assert cache.size_tokens == 8 + 9
    cache.finish(alpha, 4)
    cache.finish(waiting, 5)
    assert cache.match(prompt("bbbbbbbb")).cached_tokens == 0


def test_first_come_first_served() -> None:
    """Of several that wait, the one that began first takes the released slot."""
    cache = SlotCache(1, 100)
    running = cache.begin(prompt("a"), 1)
    cache.begin(prompt("bb"), 2)
    cache.begin(prompt("ccc"), 3)
    cache.finish(running, 4)
    assert cache.size_tokens == 2


def test_those_who_give_up_waiting_take_no_slot() -> None:
    """A request that ends while it waits leaves no trace."""
    cache = SlotCache(1, 100)
    running, gone = cache.begin(prompt("aaaa"), 1), cache.begin(prompt("bbbb"), 2)
    cache.finish(gone, 3, computed=False)
    cache.finish(running, 4)
    assert cache.match(prompt("aaaa")).cached_tokens == 3


def test_prompt_too_long_for_a_slot_never_enters() -> None:
    """The engine refuses it, and wants room for one generated token."""
    cache = SlotCache(1, 8)
    serve(cache, "abcdefg", 1)
    placement = cache.begin(prompt("abcdefgh"), 2)
    assert (placement.cached_tokens, cache.match(prompt("abcdefgh")).evicted_reuse) == (0, 0)
    assert cache.match(prompt("abcdefg")).cached_tokens == 6
    cache.finish(placement, 3)
    assert cache.match(prompt("abcdefg")).cached_tokens == 6


def test_not_computed_believes_only_what_is_true_either_way() -> None:
    """Neither the prompt, nor the rest of what was there: the engine may have overwritten it."""
    cache = SlotCache(1, 100)
    serve(cache, "abcdefgh", 1)
    cache.finish(cache.begin(prompt("abcdxyz"), 2), 3, computed=False)
    assert (
        cache.match(prompt("abcdxyz")).cached_tokens,
        cache.match(prompt("abcdefgh")).cached_tokens,
    ) == (4, 4)


def test_finish_is_once_and_only_for_its_own_era() -> None:
    """Repeated, it does not release the slot of the next; after a clear, it changes nothing."""
    cache = SlotCache(1, 100)
    first = cache.begin(prompt("aaaa"), 1)
    cache.finish(first, 2)
    second = cache.begin(prompt("bbbb"), 3)
    cache.finish(first, 4, computed=False)
    assert "1 of 1 slots busy" in repr(cache)
    cache.clear()
    third = cache.begin(prompt("cccc"), 5)
    cache.finish(second, 6, computed=False)
    assert "1 of 1 slots busy" in repr(cache)
    cache.finish(third, 7)
    assert cache.match(prompt("cccc")).cached_tokens == 3


def test_namespaces_share_nothing() -> None:
    """The same tokens under another seed are another prompt."""
    cache = SlotCache(1, 100)
    serve(cache, "abcdefgh", 1)
    assert cache.match(prompt("abcdefgh", seed=2)).cached_tokens == 0
    assert cache.match(prompt("abcdefgh", seed=2)).evicted_reuse == 8


def test_ready_keys_of_a_trace() -> None:
    """Reuse is then in whole blocks, and never beyond the shorter prompt."""
    cache = SlotCache(1, 10_000)
    cache.finish(cache.begin(Prefix.of_blocks([1, 2, 3], 512, 1100), 1), 1)
    assert cache.match(Prefix.of_blocks([1, 2, 9, 10], 512, 2048)).cached_tokens == 1024
    assert cache.match(Prefix.of_blocks([1, 2, 3], 512, 1100)).cached_tokens == 1099
    assert cache.match(Prefix.of_blocks([1, 2, 3, 4], 512, 2048)).cached_tokens == 1100
