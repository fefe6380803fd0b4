"""Quantiles in bounded memory."""

from hypothesis import given
from hypothesis import strategies as st

from prefold.measurement.sketch import Sketch


@given(st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=200), st.floats(0, 1))
def test_quantiles_are_within_the_relative_error_of_the_exact_ones(
    values: list[float], q: float
) -> None:
    """Against the sorted list, at the same rank."""
    sketch = Sketch()
    for value in values:
        sketch.add(value)
    exact = sorted(values)[int(q * (len(values) - 1))]
    found = sketch.quantile(q)

    assert found is not None
    assert abs(found - exact) <= 0.0101 * exact


def test_an_empty_series_has_no_quantiles() -> None:
    """Unknown, not zero."""
    assert Sketch().quantile(0.5) is None


def test_memory_does_not_grow_with_the_series() -> None:
    """A million values of six decades need some hundred buckets."""
    sketch = Sketch()
    for exponent in range(1_000):
        sketch.add(10 ** (exponent % 600 / 100 - 5))
    assert len(sketch._buckets) < 800
    assert sketch.count == 1_000


@given(st.lists(st.floats(1e-6, 1e4)), st.lists(st.floats(1e-6, 1e4)))
def test_merged_sketches_are_one_of_all_values(some: list[float], others: list[float]) -> None:
    """As if every value had been added to the one."""
    one, other, both = Sketch(), Sketch(), Sketch()
    for sketch, values in ((one, some), (other, others), (both, some + others)):
        for value in values:
            sketch.add(value)
    one.merge(other)

    assert one.count == both.count
    assert [one.quantile(q) for q in (0, 0.5, 1)] == [both.quantile(q) for q in (0, 0.5, 1)]
