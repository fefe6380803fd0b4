"""An experiment by time, as its rows show it: which slices there are, which rounds are whole, and
whether the caches had settled when a slice's requests began to count.

What was drawn by lot is the order of the arms in a round, so rounds are what is resampled.
"""

from __future__ import annotations

from array import array

import msgspec
import numpy as np
from numpy.typing import NDArray

from prefold.measurement.benefit.columns import Columns, Floats
from prefold.measurement.benefit.timelines import OK
from prefold.measurement.intervals import Interval, Sums, difference_of_rounds
from prefold.measurement.ledger.reader import LedgerRow


class Slicing(msgspec.Struct, frozen=True, kw_only=True):
    """`slices` with requests that count, by arm; `rounds`: those in which each arm has one.

    `settling`, by arm: the cached share of the later half of the slices' time that counts, less
    that of the earlier half. Where that is not zero, caches were still becoming this arm's.
    """

    slices: dict[str, int]
    rounds: int
    mixed_slices: int
    """That are of several arms, since these were changed within: in no difference."""
    washout_requests: int
    unsliced_requests: int
    """With an arm of another experiment, one by conversations: in no difference."""
    settling: dict[str, Interval | None]

    @property
    def unsettled(self) -> list[str]:
        """Arms of which it is sure."""
        return [arm for arm, told in self.settling.items() if told is not None and told.effect]


class SliceTally:
    """Mutable."""

    def __init__(self) -> None:
        self._slices: dict[float, int] = {}
        self._rounds: dict[float, int] = {}
        self._round_of = array("q")
        self._washout = self._unsliced = 0
        self._arms: dict[str, _Halves] = {}

    def add(self, row: LedgerRow) -> int:
        """The number of its slice; -1 where it counts for none."""
        if row.slice_start is None or row.round_start is None:
            self._unsliced += row.arm is not None
            return -1
        if row.arm is None:
            self._washout += 1
            return -1
        number = self._slices.get(row.slice_start)
        if number is None:
            number = self._slices[row.slice_start] = len(self._slices)
            self._round_of.append(self._rounds.setdefault(row.round_start, len(self._rounds)))
        self._arms.setdefault(row.arm, _Halves()).add(row, number, row.slice_start)
        return number

    @property
    def rounds(self) -> NDArray[np.int64]:
        """The number of its round, for each slice."""
        return np.array(self._round_of, dtype=np.int64)

    def figures(self, arms: dict[str, Columns], left_out: NDArray[np.int64]) -> Slicing:
        """`left_out`: numbers of mixed slices. The level of `settling` holds for all arms."""
        rounds, mixed = self.rounds, set(left_out.tolist())
        held = {name: columns.units() - mixed for name, columns in arms.items()}
        whole = [set(rounds[sorted(numbers)].tolist()) for numbers in held.values()]
        middle = _middle([halves.offsets() for halves in self._arms.values()])
        confidence = 1 - 0.05 / max(len(arms), 1)
        return Slicing(
            slices={name: len(numbers) for name, numbers in held.items()},
            rounds=len(set.intersection(*whole)) if whole else 0,
            mixed_slices=len(left_out),
            washout_requests=self._washout,
            unsliced_requests=self._unsliced,
            settling={
                name: halves.difference(middle, confidence)
                for name, halves in sorted(self._arms.items())
            },
        )


class _Halves:
    """Reported and prompt tokens of an arm's requests, and how long after their slice's beginning
    they came. Mutable."""

    def __init__(self) -> None:
        self._numbers = array("q")
        self._values = array("d")

    def add(self, row: LedgerRow, number: int, start: float) -> None:
        if row.outcome == OK and row.reported_tokens is not None and row.prompt_tokens:
            self._numbers.append(number)
            self._values.extend((row.received - start, row.reported_tokens, row.prompt_tokens))

    def offsets(self) -> Floats:
        return self._table()[:, 0]

    def _table(self) -> Floats:
        return np.array(self._values, dtype=np.float64).reshape(-1, 3)

    def difference(self, middle: float, confidence: float) -> Interval | None:
        """By slices that have something of both halves."""
        table, numbers = self._table(), np.array(self._numbers, dtype=np.int64)
        if not len(numbers):
            return None
        late, size = table[:, 0] >= middle, int(numbers.max()) + 1
        sides = [
            Sums(*(_summed(numbers[half], table[half, column], size) for column in (1, 2)))
            for half in (~late, late)
        ]
        both = (sides[0].counts > 0) & (sides[1].counts > 0)
        early, later = (Sums(side.sums[both], side.counts[both]) for side in sides)
        return difference_of_rounds(early, later, confidence=confidence)


def _middle(offsets: list[Floats]) -> float:
    """Of the part of slices that counts, as requests show it."""
    known = [some for some in offsets if len(some)]
    if not known:
        return 0.0
    return (min(float(some.min()) for some in known) + max(float(some.max()) for some in known)) / 2


def paired(
    control: tuple[NDArray[np.int64], Sums],
    treated: tuple[NDArray[np.int64], Sums],
    rounds: NDArray[np.int64],
) -> tuple[Sums, Sums]:
    """From sums by slice (their numbers first) to sums by round, of the rounds that both have."""
    own = rounds[control[0]], rounds[treated[0]]
    common = np.intersect1d(own[0], own[1])
    made = []
    for names, (_, sums) in zip(own, (control, treated), strict=True):
        there = np.isin(names, common)
        places = np.searchsorted(common, names[there])
        made.append(Sums(*(_summed(places, values[there], len(common)) for values in sums)))
    return made[0], made[1]


def _summed(places: NDArray[np.int64], values: Floats, size: int) -> Floats:
    made: Floats = np.bincount(places, values, size).astype(np.float64)
    return made
