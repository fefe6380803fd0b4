"""Quantiles of an unbounded series in bounded memory, with a bounded relative error.

DDSketch (Masson, Rim, Lee: "DDSketch", VLDB 2019): buckets that grow geometrically.
"""

from __future__ import annotations

import math


class Sketch:
    """Of positive values; `quantile` is within `relative_error` of the exact one."""

    def __init__(self, relative_error: float = 0.01) -> None:
        self._gamma = (1 + relative_error) / (1 - relative_error)
        self._log_gamma = math.log(self._gamma)
        self._buckets: dict[int, int] = {}
        self.count = 0

    FLOOR = 1e-7  # a tenth of a microsecond: below every clock's resolution here

    def add(self, *values: float) -> None:
        buckets, log_gamma, floor = self._buckets, self._log_gamma, self.FLOOR
        for value in values:
            bucket = math.ceil(math.log(max(value, floor)) / log_gamma)
            buckets[bucket] = buckets.get(bucket, 0) + 1
        self.count += len(values)

    def quantile(self, q: float) -> float | None:
        """The value at rank q (0..1), None while the series is empty."""
        if not self.count:
            return None
        rank = q * (self.count - 1)
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen > rank:
                return 2 * self._gamma**bucket / (self._gamma + 1)
        raise AssertionError("ranks end within the last bucket")
