"""How sure a difference is: bootstrap intervals that resample whole clusters, which are what was
drawn by lot: conversations, or rounds of time slices.

Requests of one conversation are not independent (the second is warm because the first was sent), so
resampling requests would make any difference look surer than it is. Nor are those of one slice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
REPETITIONS = 2000
MIN_CLUSTERS = 20
"""Below, percentile intervals of means are too narrow to be called by their level."""


MAX_DRAWN = 4_000_000
"""Clusters drawn at a time, which bounds the memory."""


class Sums(NamedTuple):
    """Values summed up by cluster, and how many of them each cluster has (one or more)."""

    sums: NDArray[np.float64]
    counts: NDArray[np.float64]

    @classmethod
    def of(cls, clusters: Mapping[str, Sequence[float]]) -> Sums:
        return cls(
            np.array([sum(values) for values in clusters.values()], dtype=np.float64),
            np.array([len(values) for values in clusters.values()], dtype=np.float64),
        )

    @property
    def mean(self) -> float:
        """Over all values."""
        return float(self.sums.sum() / self.counts.sum())


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
    return difference_of_sums(
        Sums.of(control), Sums.of(treated), seed=seed, repetitions=repetitions,
        confidence=confidence,
    )  # fmt: skip


def difference_of_sums(
    control: Sums,
    treated: Sums,
    *,
    seed: int = 0,
    repetitions: int = REPETITIONS,
    confidence: float = CONFIDENCE,
) -> Interval | None:
    """The same of what is summed up by cluster already."""
    random = np.random.default_rng(seed)
    smaller = min(len(control.sums), len(treated.sums))
    if smaller < MIN_CLUSTERS:
        return None
    drawn = _means(treated, random, repetitions) - _means(control, random, repetitions)
    return _interval(treated.mean - control.mean, drawn, confidence, smaller)


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
    sums = Sums.of(gains)
    drawn = _means(sums, np.random.default_rng(seed), repetitions)
    return _interval(sums.mean, drawn, confidence, len(gains))


def difference_of_rounds(
    control: Sums,
    treated: Sums,
    *,
    seed: int = 0,
    repetitions: int = REPETITIONS,
    confidence: float = CONFIDENCE,
) -> Interval | None:
    """Of means over all values of each side, where each place of both is one round: it is drawn
    with both of its sides, so what rounds have in common with nothing but themselves (the time of
    the day) is in no bound. None: fewer than MIN_CLUSTERS rounds.

    Student's bounds, with the standard error of the resamples: rounds are few, and percentiles
    of few are too narrow.
    """
    size = len(control.sums)
    if size < MIN_CLUSTERS:
        return None
    sides = Sums(np.stack([control.sums, treated.sums]), np.stack([control.counts, treated.counts]))
    drawn = np.diff(_means(sides, np.random.default_rng(seed), repetitions), axis=0)
    observed = treated.mean - control.mean
    error = float(np.std(drawn)) * (size / (size - 1)) ** 0.5
    reach = student(1 - (1 - confidence) / 2, size - 1) * error
    return Interval(
        difference=observed,
        low=observed - reach,
        high=observed + reach,
        confidence=confidence,
        clusters=size,
    )


def student(level: float, freedom: int) -> float:
    """A quantile of Student's t, by Fisher's expansion about the normal one (Abramowitz and Stegun
    26.7.5): with 10 degrees of freedom and more it is right to three digits."""
    z = NormalDist().inv_cdf(level)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


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


def _means(clusters: Sums, random: np.random.Generator, repetitions: int) -> NDArray[np.float64]:
    """Of resamples with replacement of as many clusters as there are: one row of them for each row
    of the sums, which are drawn together."""
    size = clusters.sums.shape[-1]
    means = np.empty((*clusters.sums.shape[:-1], repetitions))
    step = max(MAX_DRAWN // size, 1)
    for start in range(0, repetitions, step):
        part = means[..., start : start + step]
        drawn = random.integers(0, size, size=(part.shape[-1], size))
        totals = clusters.sums[..., drawn].sum(axis=-1)
        part[:] = totals / clusters.counts[..., drawn].sum(axis=-1)
    return means
