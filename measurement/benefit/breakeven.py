"""From which length on an arm pays: its gain against the uncached tokens of the prompt, in bins,
and where it crosses zero.

The gain is milliseconds of TTFT, control less treated: above zero it pays. Bounds of bins are
Student's, with the standard errors that resampling conversations gives: percentiles so far out
would be those of a few resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from prefold.measurement.benefit.columns import Points
from prefold.measurement.intervals import student

Floats = NDArray[np.float64]

MAX_BINS = 8
MIN_BIN = 30
"""Conversations of each side in a bin."""
REPETITIONS = 1000
CONFIDENCE = 0.95
MAX_DRAWN = 4_000_000
"""Counts drawn at a time, which bounds the memory."""

Shape = Literal["crosses", "pays", "costs", "none"]


class Bin(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts of `start` to below `end` uncached tokens (the last bin: to `end`). `low` and `high`
    hold for all bins together."""

    start: float
    end: float
    centre: float
    """Mean uncached tokens."""
    control: int
    treated: int
    """Requests."""
    gain_ms: float
    low: float
    high: float


class Crossing(msgspec.Struct, frozen=True, kw_only=True):
    """Uncached tokens at which the gain is zero, with 95 % bounds, which do not reach beyond the
    middles of the first and the last bin."""

    tokens: float
    low: float
    high: float


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """`crosses`: in some bin it surely costs, and in a later one it surely pays. `pays`, `costs`:
    surely in some bin, and surely the other way in none. `none`: neither can be told."""

    shape: Shape
    bins: tuple[Bin, ...]
    crossing: Crossing | None


def curve(control: Points, treated: Points, *, seed: int = 0) -> Curve | None:
    """None: not enough for two bins of MIN_BIN conversations of each side."""
    edges = _edges(control, treated)
    if len(edges) < 3:
        return None
    size = len(edges) - 1
    sides = [_Side(points, edges) for points in (control, treated)]
    random = np.random.default_rng(seed)
    gains = _gains(*(side.drawn(random) for side in sides))
    observed = sides[0].means - sides[1].means
    few = np.minimum(*(side.conversations for side in sides))
    tail = (1 - CONFIDENCE) / 2 / size
    reach = np.nanstd(gains, axis=0) * [student(1 - tail, count - 1) for count in few.tolist()]
    pooled = np.concatenate([control.uncached_tokens, treated.uncached_tokens])
    centres = _centres(pooled, edges)
    counts = [side.counts.sum(axis=0) for side in sides]
    bins = tuple(
        Bin(
            start=float(edges[number]),
            end=float(edges[number + 1]),
            centre=float(centres[number]),
            control=int(counts[0][number]),
            treated=int(counts[1][number]),
            gain_ms=float(observed[number]),
            low=float(observed[number] - reach[number]),
            high=float(observed[number] + reach[number]),
        )
        for number in range(size)
    )
    shape = _shape(bins)
    weights = counts[0] * counts[1] / (counts[0] + counts[1])
    crossing = _crossing(observed, gains, centres, weights) if shape == "crosses" else None
    return Curve(shape=shape, bins=bins, crossing=crossing)


def _shape(bins: Sequence[Bin]) -> Shape:
    costs = [number for number, told in enumerate(bins) if told.high < 0]
    pays = [number for number, told in enumerate(bins) if told.low > 0]
    if costs and pays:
        return "crosses" if costs[-1] < pays[0] else "none"
    return "pays" if pays else "costs" if costs else "none"


def _crossing(observed: Floats, drawn: Floats, centres: Floats, weights: Floats) -> Crossing:
    crossings = [crossing(row, centres, weights) for row in drawn if not np.isnan(row).any()]
    low, high = np.percentile(crossings, (100 * (1 - CONFIDENCE) / 2, 100 * (1 + CONFIDENCE) / 2))
    return Crossing(tokens=crossing(observed, centres, weights), low=float(low), high=float(high))


def crossing(gains: Floats, centres: Floats, weights: Floats) -> float:
    """Where the gain, taken to grow with the tokens, becomes positive: between the middles of two
    bins by a straight line; the first or the last middle where it is so, or is not, everywhere."""
    fit = isotonic(gains, weights)
    after = int(np.searchsorted(fit > 0, True))
    if after == 0:
        return float(centres[0])
    if after == len(fit):
        return float(centres[-1])
    below, above = fit[after - 1], fit[after]
    share = -below / (above - below)
    return float(centres[after - 1] + share * (centres[after] - centres[after - 1]))


def isotonic(values: Floats, weights: Floats) -> Floats:
    """The non-decreasing sequence of the least weighted squares: neighbours that fall are pooled
    (Ayer and others, 1955)."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        block = (value, weight, 1)
        while blocks and blocks[-1][0] >= block[0]:
            mean, heavy, count = blocks.pop()
            total = heavy + block[1]
            block = ((mean * heavy + block[0] * block[1]) / total, total, count + block[2])
        blocks.append(block)
    return np.repeat([mean for mean, _, _ in blocks], [count for _, _, count in blocks])


class _Side:
    """One arm's sums and counts by conversation and bin."""

    def __init__(self, points: Points, edges: Floats) -> None:
        size = len(edges) - 1
        _, rows = np.unique(points.conversations, return_inverse=True)
        cells = rows * size + _bin_of(points.uncached_tokens, edges)
        shape = (int(rows.max()) + 1, size)
        self.sums = np.bincount(cells, points.ttft_ms, shape[0] * size).reshape(shape)
        self.counts = np.bincount(cells, minlength=shape[0] * size).reshape(shape)

    @property
    def conversations(self) -> NDArray[np.int64]:
        """In each bin."""
        there: NDArray[np.int64] = (self.counts > 0).sum(axis=0)
        return there

    @property
    def means(self) -> Floats:
        means: Floats = self.sums.sum(axis=0) / self.counts.sum(axis=0)
        return means

    def drawn(self, random: np.random.Generator) -> Floats:
        """Means by bin, of as many conversations drawn with replacement; one row a time. NaN where
        none of a bin was drawn."""
        size = len(self.sums)
        means = np.empty((REPETITIONS, self.sums.shape[1]))
        step = max(MAX_DRAWN // size, 1)
        for start in range(0, REPETITIONS, step):
            part = means[start : start + step]
            times = random.multinomial(size, np.full(size, 1 / size), size=len(part))
            counts = times @ self.counts
            part[:] = np.divide(
                times @ self.sums, counts, out=np.full(counts.shape, np.nan), where=counts > 0
            )
        return means


def _gains(control: Floats, treated: Floats) -> Floats:
    return control - treated


def _bin_of(tokens: Floats, edges: Floats) -> NDArray[np.int64]:
    inner: NDArray[np.int64] = np.searchsorted(edges[1:-1], tokens, side="right").astype(np.int64)
    return inner


def _edges(control: Points, treated: Points) -> Floats:
    """Equal shares of all requests; a bin that one side has too few conversations in is one with
    the next."""
    if not len(control.conversations) or not len(treated.conversations):
        return np.empty(0)
    pooled = np.concatenate([control.uncached_tokens, treated.uncached_tokens])
    edges = np.unique(np.quantile(pooled, np.linspace(0, 1, MAX_BINS + 1), method="lower"))
    while len(edges) > 2:
        few = np.minimum(*(_conversations(side, edges) for side in (control, treated)))
        small = int(np.argmin(few))
        if few[small] >= MIN_BIN:
            break
        edges = np.delete(edges, small + 1 if small < len(few) - 1 else small)
    return edges


def _conversations(points: Points, edges: Floats) -> NDArray[np.int64]:
    """How many different ones are in each bin."""
    bins = _bin_of(points.uncached_tokens, edges)
    pairs = np.unique(np.stack([bins, points.conversations]), axis=1)
    return np.bincount(pairs[0], minlength=len(edges) - 1)


def _centres(tokens: Floats, edges: Floats) -> Floats:
    bins = _bin_of(tokens, edges)
    size = len(edges) - 1
    centres: Floats = np.bincount(bins, tokens, size) / np.bincount(bins, minlength=size)
    return centres
