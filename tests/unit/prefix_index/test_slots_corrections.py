"""What timings teach a model of llama.cpp's slots, by examples."""

from __future__ import annotations

import numpy as np
import pytest

from prefold.prefix_index.index import RIGHT, Correction, Placement
from prefold.prefix_index.prefix import Prefix
from prefold.prefix_index.slots import SlotCache


def prompt(text: str) -> Prefix:
    """A token for each letter."""
    return Prefix.of_tokens(np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32), 1)


def end(
    cache: SlotCache, placement: Placement, now: float, reported: int, answer: int = 0
) -> Correction:
    made = cache.correct(placement, reported, now, generated_tokens=answer)
    cache.finish(placement, now)
    return made


def serve(
    cache: SlotCache, text: str, now: float, reported: int | None = None, answer: int = 0
) -> int:
    """Begun, reported on (as expected, if nothing else is said), finished; what was expected."""
    placement = cache.begin(prompt(text), now)
    expected = placement.cached_tokens
    end(cache, placement, now, expected if reported is None else reported, answer)
    return expected


def known(cache: SlotCache, *texts: str) -> list[int]:
    return [cache.match(prompt(text + "~")).cached_tokens for text in texts]


def test_a_report_as_expected_teaches_nothing() -> None:
    """And nobody is told."""
    cache = SlotCache(2, 100)
    serve(cache, "abcdefgh", 1)
    assert end(cache, cache.begin(prompt("abcdefghij"), 2), 3, 8) is RIGHT


def test_an_answer_is_in_the_slot_too() -> None:
    """All but its last token; a next turn, longer than that, is expected to repeat it."""
    cache = SlotCache(1, 100)
    serve(cache, "abcdefgh", 1, answer=5)
    assert cache.size_tokens == 12
    assert cache.match(prompt("abcdefghANSWxyz")).cached_tokens == 12
    assert cache.match(prompt("abcdefghANSW")).cached_tokens == 8, "no room for a next turn"
    assert cache.match(prompt("abcdefgxANSWxyz")).cached_tokens == 7
    assert cache.match(prompt("abcdefghANSWxyz")).evicted_reuse == 0


def test_another_answer_is_no_sign_of_another_slot() -> None:
    """A client that repeats something else finds what is common, and all else stays as believed."""
    cache = SlotCache(2, 100)
    serve(cache, "opqrstuv", 1)
    serve(cache, "abcdefgh", 2, answer=5)
    assert serve(cache, "abcdefghother", 3, reported=8) == 12
    assert known(cache, "opqrstuv", "abcdefghother") == [8, 13]


def test_requests_that_arrived_in_another_order_change_places() -> None:
    """Both had a slot to themselves, the other one each."""
    cache = SlotCache(2, 100)
    serve(cache, "abcdefgh", 1)
    serve(cache, "opqrstuv", 2)
    busy = cache.begin(prompt("abcdefgh12"), 3)
    other = cache.begin(prompt("abcdefgh34"), 3)
    assert (busy.cached_tokens, other.cached_tokens) == (8, 0)
    end(cache, other, 4, 8)
    end(cache, busy, 5, 0)
    assert known(cache, "abcdefgh12", "abcdefgh34", "opqrstuv") == [10, 10, 0]


def test_a_slot_that_others_took_is_found_by_what_was_reused_instead() -> None:
    """The one that was reused is the only other one with so much in common."""
    cache = SlotCache(2, 100)
    serve(cache, "abcdwxyz", 1)
    serve(cache, "abcdefgh", 2)
    assert serve(cache, "abcdefgh12", 3, reported=4) == 8
    assert known(cache, "abcdefgh12", "abcdwxyz") == [10, 4]
    assert cache.size_tokens == 10, "what it was expected to find is not there"


def test_what_was_released_before_a_lost_slot_is_lost_too() -> None:
    """Others take the slot released longest ago, each time."""
    cache = SlotCache(3, 100)
    for now, text in enumerate(("abcdefgh", "opqrstuv", "12345678")):
        serve(cache, text, now)
    serve(cache, "opqrstuv--", 4, reported=0)
    assert known(cache, "abcdefgh", "opqrstuv--", "12345678") == [0, 10, 8]


@pytest.mark.parametrize("cleared", [True, False])
def test_late_reports_change_nothing(cleared: bool) -> None:
    """After a clear, or after the end of the request."""
    cache = SlotCache(1, 100)
    serve(cache, "abcdefgh", 1)
    placement = cache.begin(prompt("abcdefgh12"), 2)
    if cleared:
        cache.clear()
    else:
        cache.finish(placement, 3)
    size = cache.size_tokens
    assert cache.correct(placement, 0, 4, generated_tokens=9) is RIGHT
    assert cache.size_tokens == size
