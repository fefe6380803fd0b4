"""How long things took: a histogram as Prometheus shows it, and a sketch for quantiles."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prefold.measurement.sketch import Sketch


class Histogram:
    """Of seconds. `bounds` ascend and are inclusive; the bucket without an upper bound is added.
    Mutable."""

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds

    def merge(self, other: Histogram) -> None:
        """Of the same bounds."""
        self._counts = [one + more for one, more in zip(self._counts, other._counts, strict=True)]
        self.sum += other.sum

    @property
    def count(self) -> int:
        return sum(self._counts)

    def cumulative(self) -> Iterator[tuple[str, float]]:
        """Upper bound and how many are no greater, as a histogram's samples."""
        total = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            yield bound, total


class Distribution:
    """A histogram, and quantiles. Mutable."""

    __slots__ = ("histogram", "sketch")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.histogram = Histogram(bounds)
        self.sketch = Sketch()

    def add(self, seconds: float) -> None:
        self.histogram.add(seconds)
        self.sketch.add(seconds)

    def merge(self, other: Distribution) -> None:
        self.histogram.merge(other.histogram)
        self.sketch.merge(other.sketch)
