from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.measurement.definitions.steady import cut, stability
from prefold.measurement.definitions.summary import percentile
from prefold.measurement.definitions.timeline import Chunk, Kind, Timeline


def request(sent: float, seconds: float) -> Timeline:
    return Timeline(sent=sent, chunks=(Chunk(sent + seconds, Kind.CONTENT, 1),))


def test_warmup_and_cooldown_leave_out_what_touches_them() -> None:
    """A request that was sent in the warm-up or ends in the cool-down is not counted."""
    run = [request(float(number), 1.5) for number in range(10)]  # ends at 10.5

    assert [timeline.sent for timeline in cut(run, warmup_s=2, cooldown_s=2)] == [2, 3, 4, 5, 6, 7]
    assert cut(run, warmup_s=0, cooldown_s=0) == run
    assert cut([], warmup_s=1, cooldown_s=1) == []


def test_an_even_run_is_steady_and_one_that_slows_down_is_not() -> None:
    """Three windows in a row within 10 % in both rate and latency."""
    even = [request(number / 10, 0.05) for number in range(160)]
    slowing = [request(number / 10, 0.05 + number / 1000) for number in range(160)]

    assert stability(even, 5.0).stable is True
    assert stability(slowing, 5.0).stable is False


def test_too_short_a_run_is_neither() -> None:
    """Unknown is said to be unknown."""
    assert stability([request(0, 0.1), request(4, 0.1)], 5.0).stable is None
    assert stability([], 5.0).stable is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 100))
def test_percentiles_are_numpys(samples: list[float], q: float) -> None:
    """Linear interpolation between ranks: most tools use numpy's default."""
    assert percentile(sorted(samples), q) == pytest.approx(
        float(np.percentile(samples, q)), rel=1e-9, abs=1e-9
    )
