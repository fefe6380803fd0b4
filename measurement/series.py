"""Counters and histograms that cost next to nothing to feed: plain dictionaries, turned into
Prometheus families at a scrape. A request feeds a dozen of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

Labels = tuple[str, ...]


class Counters:
    """One counter for each combination of label values."""

    def __init__(self, name: str, help_text: str, labels: Labels) -> None:
        self._name = name
        self._help = help_text
        self._labels = labels
        self._values: dict[Labels, float] = {}

    def inc(self, labels: Labels, amount: float = 1) -> None:
        self._values[labels] = self._values.get(labels, 0) + amount

    def collect(self) -> Metric:
        family = CounterMetricFamily(self._name, self._help, labels=self._labels)
        for labels, value in self._values.items():
            family.add_metric(labels, value)
        return family


class Histograms:
    """One histogram for each combination of label values. `bounds` ascend; the one without an upper
    bound is added."""

    def __init__(self, name: str, help_text: str, labels: Labels, bounds: Sequence[float]) -> None:
        self._name = name
        self._help = help_text
        self._labels = labels
        self._bounds = tuple(float(bound) for bound in bounds)
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def observe(self, labels: Labels, *values: float) -> None:
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(self._bounds) + 1)
        bounds = self._bounds
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        self._sums[labels] = self._sums.get(labels, 0.0) + sum(values)

    def collect(self) -> Metric:
        family = HistogramMetricFamily(self._name, self._help, labels=self._labels)
        for labels, counts in self._counts.items():
            family.add_metric(labels, list(self._cumulative(counts)), self._sums[labels])
        return family

    def _cumulative(self, counts: Sequence[int]) -> Iterator[tuple[str, float]]:
        total = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), counts, strict=True):
            total += count
            yield bound, total
