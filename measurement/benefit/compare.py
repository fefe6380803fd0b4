"""Two groups of one ledger: their differences with bounds, and the one sentence that is true of
them.

Only what is sure is said as an effect: the bounds of all differences in one report hold together
with 95 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from prefold.measurement.benefit.breakeven import Curve, curve
from prefold.measurement.benefit.columns import (
    CACHED_SHARE,
    E2E,
    FAILED,
    OUTPUT,
    SAID,
    SHARES,
    TTFT,
    TTFT_CACHED,
    TTFT_UNCACHED,
    UNSTREAMED,
    Columns,
    compared_names,
)
from prefold.measurement.benefit.slices import paired
from prefold.measurement.definitions.profile import Profile
from prefold.measurement.intervals import (
    MIN_CLUSTERS,
    Interval,
    Sums,
    difference_of_rounds,
    difference_of_sums,
)

MIN_CONVERSATIONS = 50
"""Of the smaller group. With fewer, and times as skewed as TTFTs are, the bounds of means hold less
often than they say."""
MIN_ROUNDS = MIN_CLUSTERS
"""Of time slices: means of many requests each, with Student's bounds."""
CONFIDENCE = 0.95
"""That all bounds of a report hold."""
TAIL_DRAWS = 25
"""Resamples beyond either bound, so that the bounds are not those of a few."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Of means, treated less control. `interval` None: MIN_CONVERSATIONS, or MIN_ROUNDS, are not
    there."""

    metric: str
    definition: str
    control: float
    treated: float
    units: int
    """Conversations of the smaller group, or rounds with a slice of both."""
    interval: Interval | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    control: str
    treated: str
    differences: tuple[Difference, ...]
    curve: Curve | None
    verdict: str


def mixed(groups: Sequence[Columns]) -> NDArray[np.int64]:
    """Numbers of units that are in more than one."""
    seen: set[int] = set()
    twice: set[int] = set()
    for group in groups:
        numbers = group.units()
        twice |= seen & numbers
        seen |= numbers
    return np.array(sorted(twice), dtype=np.int64)


def compare(
    control: tuple[str, Columns],
    treated: Mapping[str, Columns],
    profile: Profile,
    left_out: NDArray[np.int64],
    *,
    curves: bool,
    seed: int = 0,
    rounds: NDArray[np.int64] | None = None,
) -> tuple[Comparison, ...]:
    """Each of `treated` with the control. `curves`: who is in which group was drawn by lot, so
    that a break-even curve means something. `rounds`: of time slices, by number: then slices are
    the units, and there are no curves, since the uncached tokens are the arms' own doing."""
    pairs = [
        (name, metric, columns)
        for name, columns in treated.items()
        for metric in compared_names(profile, by_time=rounds is not None)
        if _both(control[1], columns, metric)
    ]
    alone = 1 - (1 - CONFIDENCE) / max(len(pairs), 1)
    found: dict[str, list[Difference]] = {name: [] for name in treated}
    for name, metric, columns in pairs:
        sides = control[1].by_unit(metric, left_out), columns.by_unit(metric, left_out)
        if rounds is None:
            told = _difference(metric, sides[0][1], sides[1][1], profile, alone, seed)
        else:
            told = _by_rounds(metric, *paired(*sides, rounds), profile, alone, seed)
        if told is not None:
            found[name].append(told)
    made = []
    for name, columns in treated.items():
        told_curve = None
        if curves and rounds is None:
            told_curve = curve(control[1].points(left_out), columns.points(left_out), seed=seed)
        made.append(
            Comparison(
                control=control[0],
                treated=name,
                differences=tuple(found[name]),
                curve=told_curve,
                verdict=verdict(
                    control[0], name, found[name], told_curve, by_time=rounds is not None
                ),
            )
        )
    return tuple(made)


def _both(one: Columns, other: Columns, metric: str) -> bool:
    """Both have something of it, and one of them something else than zero: where nobody failed,
    there is nothing to tell apart. Nor is a part told apart that is the whole."""
    values = one.values(metric), other.values(metric)
    if not all(map(len, values)) or not any(side.any() for side in values):
        return False
    is_part = metric in (TTFT_CACHED, TTFT_UNCACHED)
    return not is_part or any(
        len(part) < len(side.values(TTFT)) for part, side in zip(values, (one, other), strict=True)
    )


def _difference(
    metric: str, control: Sums, treated: Sums, profile: Profile, confidence: float, seed: int
) -> Difference | None:
    """By conversations, which were drawn one by one."""
    smaller = min(len(control.sums), len(treated.sums))
    if not smaller:
        return None
    interval = None
    if smaller >= MIN_CONVERSATIONS:
        repetitions = round(2 * TAIL_DRAWS / (1 - confidence))
        interval = difference_of_sums(
            control, treated, seed=seed, repetitions=repetitions, confidence=confidence
        )
    return _told(metric, control, treated, profile, smaller, interval)


def _by_rounds(
    metric: str, control: Sums, treated: Sums, profile: Profile, confidence: float, seed: int
) -> Difference | None:
    """By rounds of time slices, each with one of both sides."""
    size = len(control.sums)
    if not size:
        return None
    interval = difference_of_rounds(control, treated, seed=seed, confidence=confidence)
    return _told(metric, control, treated, profile, size, interval)


def _told(
    metric: str,
    control: Sums,
    treated: Sums,
    profile: Profile,
    units: int,
    interval: Interval | None,
) -> Difference:
    definitions = {told.name: told.definition for told in profile.metrics} | SAID
    return Difference(
        metric=metric,
        definition=definitions[metric],
        control=control.mean,
        treated=treated.mean,
        units=units,
        interval=interval,
    )


def verdict(
    control: str,
    treated: str,
    differences: Sequence[Difference],
    told: Curve | None,
    *,
    by_time: bool = False,
) -> str:
    """About TTFT, or where nothing was streamed, about whole answers; then what else is sure."""
    by_name = {difference.metric: difference for difference in differences}
    main = by_name.get(TTFT) or by_name.get(UNSTREAMED)
    subject = f"{treated} against {control}"
    if main is None or main.interval is None:
        there = 0 if main is None else main.units
        wanted = f"{there} of {MIN_ROUNDS} slices of each, in the same rounds"
        if not by_time:
            smaller = "" if main is None else " in the smaller group"
            wanted = f"{there} of {MIN_CONVERSATIONS} conversations{smaller}"
        return f"{subject}: not enough data yet: {wanted}"
    said = [_main(main, main.interval)]
    # What happens to short and cached prompts is of interest also where the whole tells nothing.
    said += [
        _other(one, one.interval)
        for one in differences
        if one is not main and one.interval is not None and one.interval.effect
    ]
    # The curve's bounds are not in the 95 % of the others: it speaks where they do.
    sure = [one for one in differences if one.interval is not None and one.interval.effect]
    if told is not None and any(one.metric in TTFTS for one in sure):
        said.append(_break_even(told))
    return f"{subject}: {'; '.join(said)}"


TTFTS = frozenset((TTFT, TTFT_CACHED, TTFT_UNCACHED))
NAMES = {
    TTFT: "TTFT",
    TTFT_CACHED: "TTFT of prompts mostly cached",
    TTFT_UNCACHED: "TTFT of prompts mostly not cached",
    E2E: "E2E",
    UNSTREAMED: "answers not streamed",
    OUTPUT: "output tokens",
    FAILED: "failed requests",
    CACHED_SHARE: "cached share of prompt tokens",
    "tpot_ms": "TPOT",
    "itl_ms": "ITL",
}


def _main(difference: Difference, interval: Interval) -> str:
    if interval.effect:
        return f"{said_interval(difference.metric, interval)} {NAMES[difference.metric]}"
    return (
        f"no effect on {NAMES[difference.metric]} that can be told from chance"
        f" ({said_interval(difference.metric, interval)})"
    )


def _other(difference: Difference, interval: Interval) -> str:
    return f"{said_interval(difference.metric, interval)} {NAMES[difference.metric]}"


def said_interval(metric: str, interval: Interval) -> str:
    scale, unit = (100.0, " points") if metric in SHARES else (1.0, "")
    if metric.endswith("_ms"):
        unit = " ms"
    moved, low, high = (
        said_signed(value * scale) for value in (interval.difference, interval.low, interval.high)
    )
    return f"{moved}{unit} [{low}, {high}]"


def said_signed(value: float) -> str:
    """Three digits and more."""
    size = abs(value)
    places = 0 if size >= 100 else 1 if size >= 10 else 2
    return f"{value:+,.{places}f}"


def _break_even(told: Curve) -> str:
    if told.crossing is not None:
        crossing = told.crossing
        return (
            f"pays above {crossing.tokens:,.0f} uncached tokens"
            f" [{crossing.low:,.0f}, {crossing.high:,.0f}]"
        )
    if told.shape in ("pays", "costs"):
        pays = told.shape == "pays"
        sure = [one for one in told.bins if (one.low > 0 if pays else one.high < 0)]
        return (
            f"{told.shape} for sure in {len(sure)} of {len(told.bins)} bins of uncached tokens,"
            f" the first from {sure[0].start:,.0f} on; no crossing in the data"
        )
    return "no crossing in the data"
