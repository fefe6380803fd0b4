"""A backend's speed of prefill from times to first tokens, noisy ones and false ones among them."""

import random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.backends.rate import PrefillRate


def test_one_prompt_is_a_first_guess() -> None:
    """Tiny prompts and impossible times are none."""
    rate = PrefillRate()
    rate.observe(10, 5.0)
    rate.observe(5000, 0.0)
    assert (rate.tokens_per_s, rate.overhead_s) == (None, None)
    rate.observe(1000, 1.0)

    assert rate.tokens_per_s == pytest.approx(1000.0)
    assert rate.overhead_s == 0.0


def test_a_change_of_speed_is_followed() -> None:
    """A window later, nothing is left of the old one."""
    rate = PrefillRate()
    for number in range(60):
        rate.observe(100 * (1 + number % 20), (1 + number % 20) / 10)
    assert rate.tokens_per_s == pytest.approx(1000.0)
    for number in range(PrefillRate.WINDOW):
        rate.observe(100 * (1 + number % 20), (1 + number % 20) / 2)

    assert rate.tokens_per_s == pytest.approx(200.0, rel=0.01)


@given(
    st.floats(1.0, 1e6),
    st.floats(0.001, 2.0),
    st.lists(st.integers(64, 200_000), min_size=32, max_size=80).filter(
        lambda sizes: len({size.bit_length() for size in sizes[-32:]}) > 3
    ),
)
def test_times_on_a_line_are_found_again(true: float, overhead: float, sizes: list[int]) -> None:
    """Exactly, from prompts of several sizes; or, where too few pairs differ enough in length, all
    of the time is taken for prefill, which makes a backend slower and never faster than it is."""
    rate = PrefillRate()
    for size in sizes:
        rate.observe(size, overhead + size / true)

    assert rate.tokens_per_s is not None
    assert rate.overhead_s is not None
    if rate.overhead_s:
        assert rate.tokens_per_s == pytest.approx(true, rel=1e-3)
        assert rate.overhead_s == pytest.approx(overhead, rel=1e-2, abs=1e-6)
    else:
        assert rate.tokens_per_s <= true * (1 + 1e-9)


@given(st.lists(st.tuples(st.integers(1, 10**6), st.floats(1e-6, 1e6)), max_size=70))
def test_whatever_is_seen_makes_a_rate_that_one_can_divide_by(
    seen: list[tuple[int, float]],
) -> None:
    """Within what single prompts showed, or faster by an overhead; never zero, never negative."""
    rate = PrefillRate()
    for tokens, seconds in seen:
        rate.observe(tokens, seconds)
    counted = [one for one in seen if one[0] >= PrefillRate.MIN_TOKENS]

    assert (rate.tokens_per_s is None) == (not counted)
    if rate.tokens_per_s is not None:
        assert rate.overhead_s is not None
        assert rate.overhead_s >= 0
        assert 0 < rate.tokens_per_s < float("inf")
        assert rate.tokens_per_s >= min(tokens / seconds for tokens, seconds in counted) * 0.999


class RatioOfSums:
    """What was used before: decayed tokens over decayed seconds."""

    def __init__(self) -> None:
        self._tokens = self._seconds = 0.0

    def observe(self, uncached_tokens: int, seconds: float) -> None:
        self._tokens = 0.9 * self._tokens + uncached_tokens
        self._seconds = 0.9 * self._seconds + seconds

    @property
    def tokens_per_s(self) -> float | None:
        return self._tokens / self._seconds


def errors(kind: type[PrefillRate | RatioOfSums], *, slow: float, overhead: float) -> list[float]:
    """Of 20 backends of 5000 tokens/s, at each of 200 prompts after the first 40: the factor by
    which the rate is off. Times are noisy by a tenth; a share of them, `slow`, is ten times too
    long; prompts have 64 to 600 tokens."""
    found = []
    for seed in range(20):
        rng, rate = random.Random(seed), kind()
        for number in range(240):
            tokens = rng.randrange(64, 600)
            seconds = (overhead + tokens / 5000) * rng.lognormvariate(0, 0.1)
            rate.observe(tokens, seconds * (10 if rng.random() < slow else 1))
            if number >= 40:
                known = rate.tokens_per_s or 0.0
                found.append(max(known / 5000, 5000 / known))
    return sorted(found)


@pytest.mark.parametrize(
    ("slow", "overhead", "before"), [(0.05, 0.0, 1.2), (0.0, 0.05, 1.7), (0.05, 0.05, 2.2)]
)
def test_neither_slow_requests_nor_an_overhead_hide_the_rate(
    slow: float, overhead: float, before: float
) -> None:
    """Off by a tenth mostly and by a third rarely, where the ratio of sums is off by `before`
    mostly, with one request in twenty ten times too slow, with 50 ms that are no prefill, and with
    both."""
    now, then = (errors(kind, slow=slow, overhead=overhead) for kind in (PrefillRate, RatioOfSums))

    assert median(now) < 1.1
    assert now[len(now) * 95 // 100] < 1.34
    assert median(then) > before
