"""What is compared of each request, in columns: one set for each group, filled row by row.

Nothing is averaged here, and nothing left out but what is not defined for a request (NaN).
"""

from __future__ import annotations

from array import array
from math import nan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from prefold.measurement.benefit.timelines import CLIENT_GONE, OK
from prefold.measurement.definitions.profile import Profile, View
from prefold.measurement.intervals import Sums
from prefold.measurement.ledger.reader import LedgerRow

Floats = NDArray[np.float64]

TTFT = "ttft_ms"
TTFT_CACHED = "ttft_cached_ms"
TTFT_UNCACHED = "ttft_uncached_ms"
E2E = "e2e_ms"
UNSTREAMED = "unstreamed_ms"
OUTPUT = "output_tokens"
FAILED = "failed"
CACHED_SHARE = "cached_share"
UNCACHED = "uncached_tokens"
PROMPT = "prompt_tokens"
HALF = 0.5
SHARES = frozenset((FAILED, CACHED_SHARE))

SAID = {
    TTFT_CACHED: "TTFT of prompts of which half or more was believed to be cached somewhere",
    TTFT_UNCACHED: "TTFT of the other prompts",
    UNSTREAMED: "received to the end of an answer that was not streamed",
    OUTPUT: "tokens of the answer, as the engine reported",
    FAILED: "share of requests without an answer; clients that left do not count",
    CACHED_SHARE: "cached tokens of all prompts over their tokens, as engines reported",
}
"""What a column is, if no profile defines it."""


def decode_metric(profile: Profile) -> str:
    """The one of a profile that tells decode alone, if it has one."""
    names = {metric.name for metric in profile.metrics}
    # guidellm's TPOT has the TTFT in it; its ITL has not.
    return "tpot_ms" if "tpot_ms" in names and profile.name != "guidellm" else "itl_ms"


def compared_names(profile: Profile, *, by_time: bool = False) -> tuple[str, ...]:
    """`by_time`: arms had the whole fleet by turns, so what the caches hold is their own doing: it
    is compared, and nothing is compared by it."""
    decode = decode_metric(profile)
    if by_time:
        return (TTFT, decode, E2E, UNSTREAMED, OUTPUT, FAILED, CACHED_SHARE)
    return (TTFT, TTFT_CACHED, TTFT_UNCACHED, decode, E2E, UNSTREAMED, OUTPUT, FAILED)


class Conversations:
    """Numbers for digests. Mutable."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def number(self, digest: bytes | None) -> int:
        """-1: unknown."""
        return -1 if digest is None else self._numbers.setdefault(digest, len(self._numbers))


class Points(NamedTuple):
    """Requests with all three known, one each."""

    conversations: NDArray[np.int64]
    uncached_tokens: Floats
    ttft_ms: Floats


class Columns:
    """Of one group. Mutable. Each request is of a unit, which was drawn by lot as a whole: a
    conversation, or a time slice."""

    def __init__(self, profile: Profile) -> None:
        self._decode = decode_metric(profile)
        self._of = {metric.name: metric.of for metric in profile.metrics}
        self._units = array("q")
        names = (*compared_names(profile), CACHED_SHARE, PROMPT, UNCACHED)
        self._values = {name: array("d") for name in names}

    def __len__(self) -> int:
        return len(self._units)

    def add(self, row: LedgerRow, view: View, unit: int) -> None:
        """`unit` -1: of none."""
        ok = row.outcome == OK
        uncached, share = uncached_before(row), uncached_share(row)
        ttft = self._one(TTFT, view) if ok else nan
        reported = ok and bool(row.prompt_tokens) and row.reported_tokens is not None
        values = {
            TTFT: ttft,
            TTFT_CACHED: ttft if share is not None and share <= HALF else nan,
            TTFT_UNCACHED: ttft if share is not None and share > HALF else nan,
            self._decode: self._one(self._decode, view) if ok else nan,
            E2E: self._one(E2E, view) if ok else nan,
            UNSTREAMED: row.end * 1000 if ok and not row.streamed else nan,
            OUTPUT: nan if row.output_tokens is None or not ok else float(row.output_tokens),
            FAILED: nan if row.outcome == CLIENT_GONE else float(not ok),
            CACHED_SHARE: float(row.reported_tokens or 0) if reported else nan,
            PROMPT: float(row.prompt_tokens or 0) if reported else nan,
            UNCACHED: nan if uncached is None else uncached,
        }
        self._units.append(unit)
        for name, value in values.items():
            self._values[name].append(value)

    def _one(self, name: str, view: View) -> float:
        """In ms; of a metric that has one sample for a request."""
        samples = self._of[name](view)
        return samples[0] * 1000 if len(samples) == 1 else nan

    def units(self) -> set[int]:
        """Without what is of none."""
        return set(self._units) - {-1}

    def values(self, name: str) -> Floats:
        """Of all requests for which it is defined; of a share of tokens, the tokens."""
        values = np.array(self._values[name], dtype=np.float64)
        return values[~np.isnan(values)]

    def by_unit(self, name: str, left_out: NDArray[np.int64]) -> tuple[NDArray[np.int64], Sums]:
        """Numbers of units in order, and their sums; without requests of none, and units that are
        `left_out`. A share of tokens has the prompts' tokens for its count, not their number."""
        values = np.array(self._values[name], dtype=np.float64)
        numbers, known = self._known(left_out)
        known &= ~np.isnan(values)
        if not known.any():
            return np.empty(0, dtype=np.int64), Sums(np.empty(0), np.empty(0))
        units, clusters = np.unique(numbers[known], return_inverse=True)
        weights = None
        if name == CACHED_SHARE:
            weights = np.array(self._values[PROMPT], dtype=np.float64)[known]
        return units, Sums(
            np.bincount(clusters, weights=values[known]).astype(np.float64),
            np.bincount(clusters, weights=weights).astype(np.float64),
        )

    def points(self, left_out: NDArray[np.int64]) -> Points:
        """For the break-even curve."""
        uncached = np.array(self._values[UNCACHED], dtype=np.float64)
        ttft = np.array(self._values[TTFT], dtype=np.float64)
        numbers, known = self._known(left_out)
        known &= ~np.isnan(uncached) & ~np.isnan(ttft)
        return Points(numbers[known], uncached[known], ttft[known])

    def _known(self, left_out: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        numbers = np.array(self._units, dtype=np.int64)
        return numbers, (numbers >= 0) & ~np.isin(numbers, left_out)


def uncached_before(row: LedgerRow) -> float | None:
    """Tokens of the prompt as it came, times the share of it that no backend was believed to hold.

    What the index believes is of the prompt as it was sent. By the share of it, a prompt that was
    shortened counts as it would have with nothing done to it, so arms may be compared by it.
    """
    share = uncached_share(row)
    whole = row.original_tokens
    if whole is None and row.prompt_tokens is not None:
        whole = row.prompt_tokens + (row.removed_tokens or 0)
    return None if share is None or whole is None else whole * share


def uncached_share(row: LedgerRow) -> float | None:
    """Of the prompt as it was sent."""
    sent = row.prompt_tokens if row.sent_tokens is None else row.sent_tokens
    if not sent or row.available_tokens is None:
        return None
    return max(1 - row.available_tokens / sent, 0.0)
