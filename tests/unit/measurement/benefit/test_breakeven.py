"""The break-even curve: bins, isotonic fit, crossing."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.measurement.benefit.breakeven import MIN_BIN, Curve, crossing, curve, isotonic
from prefold.measurement.benefit.columns import Points

VALUES = st.lists(st.tuples(st.floats(-100, 100), st.floats(0.5, 10)), min_size=1, max_size=7)


def points(seed: int, gain_of: float, *, fixed: float, count: int = 4000) -> Points:
    """TTFTs of 0.1 ms a token, less `gain_of` of it, and `fixed` ms more; four requests in a
    conversation."""
    random = np.random.default_rng(seed)
    tokens = random.integers(1, 4000, count).astype(np.float64)
    ttft = 50 + tokens * 0.1 * (1 - gain_of) + fixed + random.normal(0, 20, count)
    return Points(np.arange(count) // 4, tokens, ttft)


def told(gain: float, fixed: float) -> Curve:
    made = curve(points(1, 0.0, fixed=0.0), points(2, gain, fixed=fixed))
    assert made is not None
    return made


@given(VALUES)
def test_the_isotonic_fit_is_that_of_its_definition(values: list[tuple[float, float]]) -> None:
    """At each place the largest over starts of the smallest over ends of the means between."""
    y, w = np.array(values).T

    def mean(start: int, end: int) -> float:
        return float(np.average(y[start : end + 1], weights=w[start : end + 1]))

    size = len(y)
    naive = [
        max(min(mean(start, end) for end in range(at, size)) for start in range(at + 1))
        for at in range(size)
    ]

    assert isotonic(y, w) == pytest.approx(naive, abs=1e-9)


def test_the_crossing_is_between_the_bins_around_zero() -> None:
    """Of a straight line, where the line is; beyond the middles, at the outermost one."""
    centres, even = np.array([100.0, 200.0, 300.0, 400.0]), np.ones(4)

    assert crossing(np.array([-20.0, -10.0, 5.0, 20.0]), centres, even) == pytest.approx(
        266.67, abs=0.01
    )
    assert crossing(np.array([1.0, 2.0, 3.0, 4.0]), centres, even) == 100
    assert crossing(np.array([-4.0, -3.0, -2.0, -1.0]), centres, even) == 400


def test_a_crossing_is_found_where_it_is() -> None:
    """100 ms spent, half of 0.1 ms a token saved: 2,000 tokens. Bounds hold it in 95 % of cases: in
    17 of 20 and more."""
    made = [
        curve(points(2 * seed, 0.0, fixed=0.0), points(2 * seed + 1, 0.5, fixed=100.0))
        for seed in range(20)
    ]
    found = [one.crossing for one in made if one is not None and one.crossing is not None]

    assert len(found) == 20
    assert sum(one.low < 2000 < one.high for one in found) >= 17
    assert all(one.high - one.low < 300 for one in found)
    assert sum(one.tokens for one in found) / 20 == pytest.approx(2000, abs=20)


@pytest.mark.parametrize(("gain", "fixed", "shape"), [(0.5, 0, "pays"), (0.0, 20, "costs")])
def test_what_does_not_cross_says_so(gain: float, fixed: float, shape: str) -> None:
    """It pays everywhere, or nowhere."""
    made = told(gain, fixed)

    assert (made.shape, made.crossing) == (shape, None)


def test_no_effect_has_no_shape() -> None:
    """In at least 95 of 100 repetitions."""
    shapes = [
        made.shape
        for seed in range(100)
        if (made := curve(points(2 * seed, 0, fixed=0, count=1000),
                          points(2 * seed + 1, 0, fixed=0, count=1000)))
    ]  # fmt: skip

    assert len(shapes) == 100
    assert shapes.count("none") >= 95


def test_bins_join_without_gaps_and_hold_every_request() -> None:
    """Each with enough conversations of both sides."""
    made = told(0.5, 100)

    assert all(one.end == other.start for one, other in pairwise(made.bins))
    assert sum(one.control for one in made.bins) == sum(one.treated for one in made.bins) == 4000
    assert all(one.start <= one.centre <= one.end for one in made.bins)


def test_bins_of_few_conversations_are_joined() -> None:
    """Of one side with few, there are fewer bins; with too few, there is no curve."""
    control = points(1, 0.0, fixed=0.0)
    few = points(2, 0.5, fixed=0.0, count=4 * (MIN_BIN + MIN_BIN // 4))
    made = curve(control, few)
    none = Points(few.conversations[:0], few.uncached_tokens[:0], few.ttft_ms[:0])

    assert made is None or len(made.bins) < 8
    start = slice(2 * MIN_BIN)
    short = Points(few.conversations[start], few.uncached_tokens[start], few.ttft_ms[start])
    assert curve(control, short) is None
    assert curve(control, none) is None
    same = few._replace(uncached_tokens=np.full(len(few.ttft_ms), 7.0))
    assert curve(same, same) is None
