"""The gate: which form of a prompt has the earliest first token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.compression.gate import Form, Place, Reason, decide, ttft_s

PLACE = Place(queued_tokens=0, tokens_per_s=1000.0)
tokens = st.floats(0, 1e6, allow_nan=False)
seconds = st.floats(0, 1e3, allow_nan=False)


def form(tokens: float, *cached: float, ready_s: float = 0.0) -> Form:
    return Form(tokens=tokens, cached_tokens=cached, ready_s=ready_s)


def test_the_time_to_first_token_is_queue_and_uncached_tokens_over_the_rate() -> None:
    """Worked by hand: 0.25 s for the compressor, 0.1 s overhead, (500 + 1000 - 200) / 1000."""
    place = Place(queued_tokens=500, tokens_per_s=1000.0, overhead_s=0.1)
    assert ttft_s(form(1000, 200, ready_s=0.25), [place]) == pytest.approx(0.25 + 0.1 + 1.3)


def test_each_form_has_its_best_place() -> None:
    """The original is warm here, the short one is sooner there: what is compared is the best."""
    places = [PLACE, Place(queued_tokens=0, tokens_per_s=4000.0)]
    verdict = decide([form(2000, 1900, 0), form(1000, 0, 0)], places, 0.0)
    assert (verdict.form, verdict.reason) == (0, Reason.COSTS)
    assert verdict.chosen_s == pytest.approx(0.1)
    assert decide([form(2000, 1000, 0), form(1000, 0, 0)], places, 0.0).form == 1


@pytest.mark.parametrize(
    ("compressor_tokens_per_s", "pays"), [(1900.0, False), (2000.0, False), (2100.0, True)]
)
def test_cold_it_pays_where_the_compressor_is_fast_enough(
    compressor_tokens_per_s: float, pays: bool
) -> None:
    """Rc > Rp / (1 - r): half kept, twice as fast as prefill."""
    short = form(5000, 0, ready_s=10_000 / compressor_tokens_per_s)
    verdict = decide([form(10_000, 0), short], [PLACE], 0.0)
    assert (verdict.reason is Reason.PAYS) == pays


def test_warm_it_loses_where_more_is_cached_than_compression_removes() -> None:
    """h > 1 - r: a compressor that costs nothing loses against a prefix that is held."""
    assert decide([form(10_000, 5100), form(5000, 0)], [PLACE], 0.0).form == 0
    assert decide([form(10_000, 4900), form(5000, 0)], [PLACE], 0.0).form == 1


def test_a_gain_within_the_margin_is_not_believed() -> None:
    """Estimates are off by more."""
    verdict = decide([form(1010, 0), form(1000, 0)], [PLACE], 0.02)
    assert (verdict.form, verdict.reason) == (0, Reason.BELOW_MARGIN)
    assert verdict.gain_s == 0


def test_what_is_never_ready_is_never_chosen() -> None:
    """And one form alone leaves nothing to decide."""
    assert decide([form(10_000, 0), form(1, 0, ready_s=float("inf"))], [PLACE], 0.0).form == 0
    assert decide([form(10, 0)], [PLACE], 0.0).reason is Reason.NOTHING
    with pytest.raises(ValueError, match="empty"):
        decide([form(10)], [], 0.0)


@given(
    forms=st.lists(st.tuples(tokens, tokens, seconds), min_size=1, max_size=4),
    queued=tokens,
    rate=st.floats(1, 1e6),
    margin=st.floats(0, 10),
)
def test_the_chosen_form_is_never_later_than_the_fallback(
    forms: list[tuple[float, float, float]], queued: float, rate: float, margin: float
) -> None:
    """By more than the margin sooner where it is another one, and none is sooner than it then."""
    made = [form(all_, min(all_, cached), ready_s=ready) for all_, cached, ready in forms]
    places = [Place(queued_tokens=queued, tokens_per_s=rate)]
    verdict = decide(made, places, margin)
    times = [ttft_s(one, places) for one in made]
    assert verdict.chosen_s == times[verdict.form]
    assert verdict.fallback_s == times[0]
    if verdict.form:
        assert verdict.gain_s > margin
        assert verdict.chosen_s == min(times)
    else:
        assert times[0] - min(times) <= margin
