"""How sure a difference is: bootstrap intervals that resample whole conversations.

Requests of one conversation are not independent (the second is warm because the first was sent), so
resampling requests would make any difference look surer than it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
REPETITIONS = 2000
MIN_CLUSTERS = 20
"""Below, percentile intervals of means are too narrow to be called by their level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A difference of means, treated less control, with the bounds between which it lies with
    `confidence`; `clusters` is the smaller number of them."""

    difference: float
    low: float
    high: float
    confidence: float
    clusters: int

    @property
    def effect(self) -> bool:
        """Zero is outside."""
        return self.low > 0 or self.high < 0


def difference(
    control: Mapping[str, Sequence[float]],
    treated: Mapping[str, Sequence[float]],
    *,
    seed: int = 0,
    repetitions: int = REPETITIONS,
    confidence: float = CONFIDENCE,
) -> Interval | None:
    """Of means over all values of each side; both by cluster (a conversation). None: fewer than
    MIN_CLUSTERS on a side.

    Percentiles of a cluster bootstrap (Efron and Tibshirani, 1993, chapters 8 and 13), the sides
    resampled independently.
    """
    random = np.random.default_rng(seed)
    smaller = min(len(control), len(treated))
    if smaller < MIN_CLUSTERS:
        return None
    drawn = _means(treated, random, repetitions) - _means(control, random, repetitions)
    return _interval(_mean(treated) - _mean(control), drawn, confidence, smaller)


def paired_difference(
    pairs: Mapping[str, Sequence[tuple[float, float]]],
    *,
    seed: int = 0,
    repetitions: int = REPETITIONS,
    confidence: float = CONFIDENCE,
) -> Interval | None:
    """Of (control, treated) values of the same requests, by cluster; None as in `difference`."""
    if len(pairs) < MIN_CLUSTERS:
        return None
    gains = {
        cluster: [treated - control for control, treated in values]
        for cluster, values in pairs.items()
    }
    drawn = _means(gains, np.random.default_rng(seed), repetitions)
    return _interval(_mean(gains), drawn, confidence, len(gains))


def _interval(
    observed: float, drawn: NDArray[np.float64], confidence: float, clusters: int
) -> Interval:
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(drawn, (tail, 100 - tail))
    return Interval(
        difference=observed,
        low=float(low),
        high=float(high),
        confidence=confidence,
        clusters=clusters,
    )


def _mean(clusters: Mapping[str, Sequence[float]]) -> float:
    return sum(map(sum, clusters.values())) / sum(map(len, clusters.values()))


def _means(
    clusters: Mapping[str, Sequence[float]], random: np.random.Generator, repetitions: int
) -> NDArray[np.float64]:
    """Of resamples with replacement of as many clusters as there are."""
    sums = np.array([sum(values) for values in clusters.values()], dtype=np.float64)
    counts = np.array([len(values) for values in clusters.values()], dtype=np.float64)
    drawn = random.integers(0, len(sums), size=(repetitions, len(sums)))
    means: NDArray[np.float64] = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    return means
