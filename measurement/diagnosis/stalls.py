"""Do decode stalls coincide with the prefills of other requests on the same backend?

A stall is a gap between two tokens that is STALL times the backend's median gap. What share of the
stalls fall together with a prefill is compared with chance: all prefills of the backend are moved
by one random time, on a clock that runs for each answer that is being decoded, so that a busy hour,
which has more of both, is not taken for a cause.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prefold.measurement.diagnosis.answer import Answer, Figure, Verdict, unknown
from prefold.measurement.diagnosis.batching import MIN_TOKENS
from prefold.measurement.diagnosis.sample import SEED, Floats, Ints, Sample

KEY = "stalls_with_prefills"
QUESTION = "Do decode stalls coincide with others' prefills?"
STALL = 4.0
LEAST_S = 0.005
"""A gap below is no stall that anybody sees."""
MIN_STALLS = 20
SHIFTS = 400
SURE = 0.025
"""Of the shifts, so many may show as much."""
MAX_CHANCE = 0.9
"""Where prefills are nearly always under way, coincidence tells nothing."""


class Spans(NamedTuple):
    starts: Floats
    ends: Floats


class Coincidence(NamedTuple):
    """Of one backend: stalls, how many fall together with another request's prefill, and how many
    do in each of the shifts; and the seconds that stalls took."""

    stalls: int
    together: int
    shifted: Ints
    gaps: int


def stalls_with_prefills(sample: Sample) -> Answer:
    names = np.array(sample.backends, dtype=object)
    found = [
        made
        for name in sorted(set(sample.backends))
        if (made := _of_backend(sample, np.flatnonzero(names == name))) is not None
    ]
    if not found:
        needed = "the times of all tokens of streamed answers (ledger.token_times)"
        return unknown(KEY, QUESTION, needed)
    stalls, gaps = (sum(getattr(one, name) for one in found) for name in ("stalls", "gaps"))
    figures = [
        Figure(name="stalls", value=stalls, unit="gaps", n=gaps),
        Figure(name="stalls of all gaps", value=stalls / gaps, unit="share", n=gaps),
    ]
    if stalls < MIN_STALLS:
        needed = (
            f"{MIN_STALLS} gaps of {STALL:.0f} times the median; there are {stalls} of {gaps:,}"
        )
        return unknown(KEY, QUESTION, needed, *figures)
    return _answer(found, stalls, figures)


def _answer(found: list[Coincidence], stalls: int, figures: list[Figure]) -> Answer:
    share = sum(one.together for one in found) / stalls
    by_chance = np.sum([one.shifted for one in found], axis=0) / stalls
    chance = float(by_chance.mean())
    low, high = np.percentile(by_chance, (2.5, 97.5))
    figures += [
        Figure(name="stalls with another's prefill", value=share, unit="share", n=stalls),
        Figure(name="by chance", value=chance, unit="share", low=low, high=high, n=SHIFTS),
    ]
    if chance > 0:
        figures.append(Figure(name="against chance", value=share / chance, unit="ratio", n=stalls))
    as_much = float((by_chance >= share).mean())
    if chance > MAX_CHANCE:
        verdict, told = (
            Verdict.UNCLEAR,
            "prefills are under way nearly always, so it cannot be told",
        )
    elif as_much <= SURE and share > chance:
        verdict, told = Verdict.YES, "more than chance"
    elif share <= high and high - chance < 0.1:
        verdict, told = Verdict.NO, "no more than chance"
    else:
        verdict, told = Verdict.UNCLEAR, "which may be chance"
    return Answer(
        key=KEY,
        question=QUESTION,
        verdict=verdict,
        sentence=(
            f"{share:.0%} of {stalls:,} stalls fall together with another request's prefill on the"
            f" same backend, by chance {chance:.0%} [{low:.0%}, {high:.0%}]: {told}"
        ),
        figures=figures,
    )


def _of_backend(sample: Sample, places: Ints) -> Coincidence | None:
    """None: of none of its answers all token times are known."""
    gaps = _gaps(sample, places)
    if gaps is None:
        return None
    lengths = gaps.ends - gaps.starts
    long = lengths >= max(STALL * float(np.median(lengths)), LEAST_S)
    computed = np.nan_to_num(sample["uncached"], nan=np.inf) >= MIN_TOKENS
    prefills = places[computed[places] & ~np.isnan(sample["sent"][places])]
    clock = Decoding.of(sample["first"][places], sample["last"][places])
    stalls = Spans(clock.at(gaps.starts[long]), clock.at(gaps.ends[long]))
    spans = Spans(clock.at(sample["sent"][prefills]), clock.at(sample["first"][prefills]))
    whole = clock.seconds
    shifts = np.random.default_rng(SEED).uniform(0.0, whole, SHIFTS)
    shifted = [int(_together(stalls, spans, shift, whole).sum()) for shift in shifts]
    together = int(_together(stalls, spans, 0.0, whole).sum())
    return Coincidence(len(stalls.starts), together, np.array(shifted), len(lengths))


def _gaps(sample: Sample, places: Ints) -> Spans | None:
    kept = [moments for place in places if (moments := sample.tokens[place]) is not None]
    known = [moments for moments in kept if len(moments) > 1]
    if not known:
        return None
    return Spans(
        np.concatenate([moments[:-1] for moments in known]),
        np.concatenate([moments[1:] for moments in known]),
    )


class Decoding(NamedTuple):
    """A clock that runs for each answer that is being decoded: twice as fast where there are two,
    not at all where there is none."""

    moments: Floats
    seconds_at: Floats

    @classmethod
    def of(cls, first: Floats, last: Floats) -> Decoding:
        moments = np.concatenate([first, last])
        changes = np.concatenate([np.ones(len(first)), -np.ones(len(last))])
        order = np.argsort(moments, kind="stable")
        moments, at_work = moments[order], np.cumsum(changes[order])
        return cls(moments, np.r_[0.0, np.cumsum(at_work[:-1] * np.diff(moments))])

    @property
    def seconds(self) -> float:
        return float(self.seconds_at[-1])

    def at(self, moments: Floats) -> Floats:
        made: Floats = np.interp(moments, self.moments, self.seconds_at)
        return made


def _together(stalls: Spans, prefills: Spans, shift: float, whole: float) -> Ints:
    """1 for each stall that overlaps a prefill, all of them moved by `shift` around a clock of
    `whole` seconds. A request's own, not moved, is over when its first gap begins."""
    starts = prefills.starts + shift
    ends = prefills.ends + shift
    # What is moved beyond the end comes in again at the beginning.
    starts, ends = np.r_[starts, starts - whole], np.r_[ends, ends - whole]
    within = (ends > starts) & (ends > 0) & (starts < whole)
    # Prefills that began before a stall's end, less those that were over at its start.
    begun = np.searchsorted(np.sort(starts[within]), stalls.ends, side="left")
    over = np.searchsorted(np.sort(ends[within]), stalls.starts, side="right")
    made: Ints = (begun > over).astype(np.int64)
    return made
