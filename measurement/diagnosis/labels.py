"""Do prefill and decode move differently between backends of two labels: FP8 beside BF16, say?

What is compared is what passed: unless arms gave each conversation its label by chance, the two may
have had other prompts and another load. TTFT is therefore compared at equal uncached tokens.
"""

from __future__ import annotations

from collections import Counter
from math import log, nan

import numpy as np

from prefold.measurement.benefit.prefill import slope_of
from prefold.measurement.diagnosis.answer import Answer, Figure, Verdict, unknown
from prefold.measurement.diagnosis.sample import Bounds, Floats, Ints, Sample, bounds

QUESTION = "Do prefill and decode move differently between two labels?"
KEY = "labels"
MAX_PLACES = 8000
"""Of each side, the latest."""
REPETITIONS = 200
MAX_PAIRS = 8
STEPS = 2
"""Ranges of uncached tokens for each doubling, within which they count as equal."""
FEWEST = 64
"""Tokens below which nothing is told apart."""
MIN_SHARED = 10
"""Requests of either side in a range, for it to count."""
DIFFERENT = log(1.1)


def labels_compared(sample: Sample, wanted: str | None = None) -> list[Answer]:
    """One answer for each value of each label beside the label's most frequent value."""
    values: dict[str, Counter[str]] = {}
    for labels in sample.labels:
        for name, value in labels.items():
            if wanted is None or name == wanted:
                values.setdefault(name, Counter())[value] += 1
    pairs = [
        (name, counts.most_common(1)[0][0], treated)
        for name, counts in sorted(values.items())
        for treated, _ in counts.most_common()[1:]
    ]
    if not pairs:
        named = "a label" if wanted is None else f"the label {wanted!r}"
        needed = f"answers of backends with two values of {named}, as in labels = {{gpu = ...}}"
        return [unknown(KEY, QUESTION, needed)]
    return [_compared(sample, *pair) for pair in pairs[:MAX_PAIRS]]


def _compared(sample: Sample, name: str, control: str, treated: str) -> Answer:
    sides = np.array([labels.get(name) for labels in sample.labels], dtype=object)
    latest = [np.flatnonzero(sides == value)[-MAX_PLACES:] for value in (control, treated)]
    pair = Pair(sample, sides == treated, np.sort(np.concatenate(latest)))
    found = {
        what: made
        for what, figure in (
            ("prefill", pair.prefill),
            ("ttft", pair.ttft),
            ("tpot", pair.tpot),
            ("decode", pair.decode),
        )
        if (made := bounds(sample.of(pair.places), figure, REPETITIONS)) is not None
    }
    figures = [made.figure(f"{NAMES[what]}, {treated} over {control}", "ratio")
               for what, made in found.items()]  # fmt: skip
    key, question = f"{KEY}.{name}.{treated}", f"{QUESTION} {name}: {treated} against {control}"
    apart = bounds(sample.of(pair.places), pair.apart, REPETITIONS)
    told = ", ".join(f"{NAMES[what]} {_said(made)}" for what, made in found.items())
    if apart is None:
        needed = (
            "20 conversations, and on either side prompts of different uncached lengths whose"
            " engine reports its cached tokens"
        )
        answer = unknown(key, question, needed, *figures)
        return answer if not told else _with(answer, f"{answer.sentence}; known is: {told}")
    figures.append(
        Figure(
            name="prefill's gain over decode's",
            value=float(np.exp(apart.value)),
            unit="ratio",
            low=float(np.exp(apart.low)),
            high=float(np.exp(apart.high)),
            n=apart.n,
        )
    )
    verdict = _verdict(apart)
    more, less = ("prefill", "decode") if apart.value > 0 else ("decode", "prefill")
    meaning = {
        Verdict.YES: f"{more} gains more than {less}",
        Verdict.NO: "prefill and decode gain alike",
        Verdict.UNCLEAR: "whether one gains more than the other is not sure",
    }[verdict]
    return Answer(
        key=key,
        question=question,
        verdict=verdict,
        sentence=f"{treated} against {control}: {told} ({apart.n:,} requests): {meaning}",
        figures=figures,
    )


NAMES = {
    "prefill": "prefill throughput",
    "ttft": "TTFT at equal uncached tokens",
    "tpot": "TPOT",
    "decode": "decode throughput of a stream",
}


def _verdict(apart: Bounds) -> Verdict:
    if max(-apart.low, apart.high) < DIFFERENT:
        return Verdict.NO  # however sure a difference of some percent may be
    return Verdict.YES if apart.low > 0 or apart.high < 0 else Verdict.UNCLEAR


def _said(made: Bounds) -> str:
    return f"{made.value:.2f}x [{made.low:.2f}, {made.high:.2f}]"


def _with(answer: Answer, sentence: str) -> Answer:
    return Answer(
        key=answer.key,
        question=answer.question,
        verdict=answer.verdict,
        sentence=sentence,
        figures=answer.figures,
        needs=answer.needs,
    )


class Pair:
    """The two sides. Each figure is the treated side's over the control's, of the places that are
    given; NaN where one side does not have it."""

    def __init__(self, sample: Sample, treated: np.ndarray[tuple[int], np.dtype[np.bool_]],
                 places: Ints) -> None:  # fmt: skip
        self.places = places
        self._treated = treated
        self._uncached = sample["uncached"]
        self._server = sample["first"] - sample["sent"]
        self._ttft = sample["first"] - sample["received"]
        self._decoding = sample["last"] - sample["first"]
        self._further = np.where(sample["output"] > 1, sample["output"] - 1, nan)
        self._tpot = self._decoding / self._further

    def prefill(self, places: Ints) -> float:
        """Tokens for a second: the slopes' ratio, turned round."""
        slopes = [self._slope(side) for side in self._sides(places)]
        if slopes[0] is None or slopes[1] is None or min(slopes[0], slopes[1]) <= 0:
            return nan
        return slopes[0] / slopes[1]

    def _slope(self, places: Ints) -> float | None:
        x, y = self._uncached[places], self._server[places]
        known = ~np.isnan(x) & ~np.isnan(y)
        return slope_of(x[known], y[known])

    def ttft(self, places: Ints) -> float:
        """Weighted by the smaller side of each range."""
        control, treated = (self._by_range(side) for side in self._sides(places))
        above = below = 0.0
        for number in control.keys() & treated.keys():
            weight = min(len(control[number]), len(treated[number]))
            if weight >= MIN_SHARED:
                above += weight * float(treated[number].mean())
                below += weight * float(control[number].mean())
        return above / below if below > 0 else nan

    def _by_range(self, places: Ints) -> dict[int, Floats]:
        places = places[~np.isnan(self._uncached[places])]
        tokens = np.maximum(self._uncached[places], FEWEST)
        numbers = np.floor(STEPS * np.log2(tokens)).astype(np.int64)
        return {int(number): self._ttft[places[numbers == number]] for number in np.unique(numbers)}

    def tpot(self, places: Ints) -> float:
        control, treated = (_mean(self._tpot[side]) for side in self._sides(places))
        return treated / control if control > 0 else nan

    def decode(self, places: Ints) -> float:
        """Tokens for a second of a stream, long answers most."""
        control, treated = (
            _sum(self._further[side]) / (_sum(self._decoding[side]) or nan)
            for side in self._sides(places)
        )
        return treated / control if control > 0 else nan

    def apart(self, places: Ints) -> float:
        """Logarithm of prefill's gain over decode's."""
        prefill, tpot = self.prefill(places), self.tpot(places)
        return log(prefill) + log(tpot) if prefill > 0 and tpot > 0 else nan

    def _sides(self, places: Ints) -> tuple[Ints, Ints]:
        treated = self._treated[places]
        return places[~treated], places[treated]


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else nan


def _sum(values: Floats) -> float:
    return float(np.nansum(values))
