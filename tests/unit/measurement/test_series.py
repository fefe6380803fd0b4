"""Counters and histograms, as a scrape shows them."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.registry import Collector

from prefold.measurement.series import Counters, Histograms

BOUNDS = (0.1, 0.5, 2.0)


class Showing(Collector):
    def __init__(self, series: Counters | Histograms) -> None:
        self._series = series

    def collect(self):  # type: ignore[no-untyped-def]
        yield self._series.collect()


def shown(series: Counters | Histograms) -> list[str]:
    registry = CollectorRegistry()
    registry.register(Showing(series))
    return generate_latest(registry).decode().splitlines()


@given(st.lists(st.floats(0, 10, allow_subnormal=False) | st.sampled_from(BOUNDS), max_size=30))
def test_a_histogram_is_the_librarys(values: list[float]) -> None:
    """Buckets are cumulative, bounds inclusive, sum and count as there."""
    registry = CollectorRegistry()
    theirs = Histogram("x_seconds", "X", ("a",), buckets=BOUNDS, registry=registry)
    ours = Histograms("x_seconds", "X", ("a",), BOUNDS)
    for value in values:
        theirs.labels("l").observe(value)
        ours.observe(("l",), value)
    expected = [
        line for line in generate_latest(registry).decode().splitlines() if "_created" not in line
    ]

    assert shown(ours) == expected


def test_many_values_at_once_are_each_counted() -> None:
    """As one by one."""
    once, each = (Histograms("x", "X", ("a",), BOUNDS) for _ in range(2))
    once.observe(("l",), 0.1, 0.2, 3.0)
    for value in (0.1, 0.2, 3.0):
        each.observe(("l",), value)

    assert shown(once) == shown(each)


def test_a_counter_adds_up_by_labels() -> None:
    """What was never counted is not shown as zero."""
    counters = Counters("x", "X", ("a",))
    counters.inc(("l",))
    counters.inc(("l",), 2)
    counters.inc(("m",), 0.5)

    assert shown(counters)[2:] == ['x_total{a="l"} 3.0', 'x_total{a="m"} 0.5']
