"""Quantiles of an unbounded series in bounded memory, with a bounded relative error.

DDSketch (Masson, Rim, Lee: "DDSketch", VLDB 2019): buckets that grow geometrically.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log

RELATIVE_ERROR = 0.01
GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
LOG_GAMMA = log(GAMMA)
FLOOR = 1e-7  # a tenth of a microsecond: below every clock's resolution here


class Sketch:
    """Of positive values; `quantile` is within RELATIVE_ERROR of the exact one."""

    __slots__ = ("_buckets", "count")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0

    def add(self, value: float) -> None:
        bucket = ceil(log(value if value > FLOOR else FLOOR) / LOG_GAMMA)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self.count += 1

    def merge(self, other: Sketch) -> None:
        buckets = self._buckets
        for bucket, count in other._buckets.items():
            buckets[bucket] = buckets.get(bucket, 0) + count
        self.count += other.count

    def quantile(self, q: float) -> float | None:
        """The value at rank q (0..1), None while the series is empty."""
        values = self.quantiles((q,))
        return values[0] if values else None

    def quantiles(self, qs: Sequence[float]) -> list[float]:
        """The values at ascending ranks, in one walk; none while the series is empty."""
        if not self.count:
            return []
        buckets = iter(sorted(self._buckets.items()))
        values, seen, bucket = [], 0, 0
        for q in qs:
            rank = q * (self.count - 1)
            while seen <= rank:
                bucket, count = next(buckets)
                seen += count
            values.append(2 * GAMMA**bucket / (GAMMA + 1))
        return values
