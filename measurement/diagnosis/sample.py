"""The requests that a diagnosis looks at, in columns; and bounds of any figure of them.

Bounds are of a cluster bootstrap: whole conversations are drawn, since their requests are not
independent (Efron and Tibshirani, 1993, chapter 8). A request of no known conversation is one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import nan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from prefold.measurement.diagnosis.answer import Figure
from prefold.measurement.intervals import MIN_CLUSTERS
from prefold.measurement.ledger.reader import LedgerRow

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_REQUESTS = 20_000
"""The latest are taken."""
REPETITIONS = 400
SEED = 7
TAILS = (2.5, 97.5)

COLUMNS = (
    "received", "queue", "proxy", "sent", "headers", "first", "last", "end",
    "prompt", "uncached", "output",
)  # fmt: skip


@dataclass(slots=True)
class Sample:
    """Answered requests, in order of their ends. Seconds since 1970 (`received`, `sent`, `headers`,
    `first` and `last` token, `end`) or as such (`queue` in ours; `proxy`: received to leased); NaN
    where unknown. `tokens`: the moments of token events, where all of them were kept."""

    columns: dict[str, Floats]
    backends: list[str]
    labels: list[dict[str, str]]
    conversations: Ints
    tokens: list[Floats | None]
    left_out: int = 0
    """Earlier ones, beyond MAX_REQUESTS."""
    _all: Ints = field(init=False)

    def __post_init__(self) -> None:
        self._all = np.arange(len(self.backends))

    def __len__(self) -> int:
        return len(self.backends)

    def __getitem__(self, name: str) -> Floats:
        return self.columns[name]

    def known(self, *values: Floats) -> Ints:
        """Places at which none of them is NaN."""
        mask = np.ones(len(self), dtype=np.bool_)
        for column in values:
            mask &= ~np.isnan(column)
        return self._all[mask]

    def of(self, places: Ints) -> Clusters:
        return Clusters(places, self.conversations[places])


class Clusters(NamedTuple):
    """Places in a sample, and what each of them belongs to."""

    places: Ints
    numbers: Ints


class Bounds(NamedTuple):
    """`clusters`: the conversations behind it."""

    value: float
    low: float
    high: float
    n: int
    clusters: int

    def figure(self, name: str, unit: str) -> Figure:
        return Figure(
            name=name, value=self.value, unit=unit, low=self.low, high=self.high, n=self.n
        )


def bounds(
    of: Clusters, figure: Callable[[Ints], float], repetitions: int = REPETITIONS
) -> Bounds | None:
    """95 % bounds of a figure of the places; NaN of it: not defined. None: too few conversations,
    or not defined for them, or for one in twenty of the draws."""
    order = np.argsort(of.numbers, kind="stable")
    places = of.places[order]
    _, starts, sizes = np.unique(of.numbers[order], return_index=True, return_counts=True)
    if len(starts) < MIN_CLUSTERS:
        return None
    value = figure(places)
    random = np.random.default_rng(SEED)
    drawn = np.empty(repetitions)
    for number in range(repetitions):
        picked = random.integers(0, len(starts), len(starts))
        drawn[number] = figure(places[_ranges(starts[picked], sizes[picked])])
    drawn = drawn[~np.isnan(drawn)]
    if np.isnan(value) or len(drawn) < 0.95 * repetitions:
        return None
    low, high = np.percentile(drawn, TAILS)
    return Bounds(float(value), float(low), float(high), len(places), len(starts))


def _ranges(starts: Ints, sizes: Ints) -> Ints:
    """start, start + 1, ... for each, one after the other."""
    ends = np.cumsum(sizes)
    made: Ints = np.arange(ends[-1]) + np.repeat(starts - (ends - sizes), sizes)
    return made


def ratio(above: Floats, below: Floats) -> Callable[[Ints], float]:
    """Of sums."""

    def figure(places: Ints) -> float:
        total = below[places].sum()
        return float(above[places].sum() / total) if total > 0 else nan

    return figure


def clusters_needed(of: Clusters, what: str) -> str:
    have = len(np.unique(of.numbers))
    return f"{MIN_CLUSTERS} conversations with {what}; there are {have}"


class _Kept(NamedTuple):
    """Of a row: lists of moments would take four times as much memory."""

    values: tuple[float, ...]
    backend: str
    labels: dict[str, str]
    conversation: bytes | None
    tokens: Floats | None


def sample_of(rows: Iterable[LedgerRow], most: int = MAX_REQUESTS) -> Sample:
    """Of answers that were streamed and ended well."""
    latest = deque[_Kept](maxlen=most)
    left_out = 0
    for row in rows:
        if row.outcome == "ok" and row.backend is not None and row.tokens:
            left_out += len(latest) == most
            latest.append(
                _Kept(_values(row), row.backend, row.labels, row.conversation, _tokens(row))
            )
    values = np.array([one.values for one in latest], dtype=np.float64).reshape(-1, len(COLUMNS))
    numbers: dict[bytes, int] = {}
    conversations = [
        -1 - place
        if one.conversation is None
        else numbers.setdefault(one.conversation, len(numbers))
        for place, one in enumerate(latest)
    ]
    return Sample(
        columns={name: values[:, at] for at, name in enumerate(COLUMNS)},
        backends=[one.backend for one in latest],
        labels=[one.labels for one in latest],
        conversations=np.array(conversations, dtype=np.int64),
        tokens=[one.tokens for one in latest],
        left_out=left_out,
    )


def _values(row: LedgerRow) -> tuple[float, ...]:
    def moment(after: float | None) -> float:
        return nan if after is None else row.received + after

    begun = row.encoded if row.compressed is None else row.compressed
    queue = nan if row.matched is None or begun is None else max(row.matched - begun, 0.0)
    uncached = nan
    if row.prompt_tokens is not None and row.reported_tokens is not None:
        uncached = float(row.prompt_tokens - row.reported_tokens)
    prompt = row.prompt_tokens if row.prompt_tokens is not None else row.original_tokens
    output = row.output_tokens if row.output_tokens is not None else len(row.tokens)
    return (
        row.received,
        queue,
        nan if row.leased is None else row.leased,
        moment(row.sent),
        moment(row.headers),
        moment(row.tokens[0]),
        moment(row.tokens[-1]),
        moment(row.end),
        nan if prompt is None else float(prompt),
        uncached,
        float(output),
    )


def _tokens(row: LedgerRow) -> Floats | None:
    """None where only the first and the last were kept."""
    if len(row.tokens) <= 2 and (row.output_tokens or 0) > 2:
        return None
    return np.array(row.tokens) + row.received
