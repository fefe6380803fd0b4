"""What a token of prefill costs, learned from rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.measurement.benefit.prefill import Prefills, rate_of
from tests.support.benefit import row


def seen(seed: int, rate: float, *, count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Uncached tokens and seconds: 40 ms of overhead, a queue now and then."""
    random = np.random.default_rng(seed)
    tokens = random.integers(50, 8000, count).astype(np.float64)
    queue = random.exponential(0.5, count) * (random.random(count) < 0.1)
    return tokens, 0.04 + tokens / rate * random.lognormal(0, 0.1, count) + queue


@given(st.integers(0, 1000), st.sampled_from([1_000.0, 10_000.0, 50_000.0]))
def test_the_rate_is_found_whatever_the_overhead(seed: int, rate: float) -> None:
    """Within a tenth, although a tenth of the requests waited half a second."""
    made = rate_of(*seen(seed, rate))

    assert made is not None
    assert 1 / made.seconds_per_token == pytest.approx(rate, rel=0.1)
    assert made.low <= made.seconds_per_token <= made.high
    assert made.requests == 200


def test_bounds_hold_the_true_rate_as_often_as_they_say() -> None:
    """95 % of them; of 60 in all, 51 is three standard deviations below that."""
    found = [rate_of(*seen(seed, 10_000.0)) for seed in range(60)]
    held = sum(made is not None and made.low <= 1e-4 <= made.high for made in found)

    assert held >= 51


def test_without_long_and_short_prompts_there_is_no_rate() -> None:
    """Nor where times do not grow with the prompt, nor of a few prompts."""
    tokens, seconds = seen(1, 10_000.0)
    random = np.random.default_rng(2)

    assert rate_of(np.full(200, 1000.0), seconds) is None
    assert rate_of(tokens, random.permutation(seconds)) is None
    assert rate_of(tokens[:10], seconds[:10]) is None
    assert rate_of(np.empty(0), np.empty(0)) is None


def test_rows_are_taken_from_their_sending_on() -> None:
    """By backend; of what was not streamed, or not reported, nothing is learned."""
    prefills = Prefills()
    for number, (tokens, seconds) in enumerate(zip(*seen(3, 10_000.0), strict=True)):
        kept = {"uncached": int(tokens), "prompt": 9000, "sent": 1.0, "ttft": 1.0 + seconds}
        prefills.add(row(number, **kept))
        prefills.add(row(number, **kept | {"ttft": 60.0}, outcome="cut_off"))
        prefills.add(row(number, **kept | {"backend": "b1", "reported_tokens": None}))
    rates = prefills.rates()

    assert list(rates) == ["b0"]
    assert 1 / rates["b0"].seconds_per_token == pytest.approx(10_000, rel=0.1)
    assert rates["b0"].overhead_s == pytest.approx(0.04, abs=0.03)
