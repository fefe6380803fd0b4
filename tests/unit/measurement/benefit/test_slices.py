"""Experiments by time: what was drawn by lot is the order of the arms in each round of slices, and
it is rounds that bounds come from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from prefold.measurement.benefit.benefit import Benefit, Reading
from prefold.measurement.benefit.columns import Columns
from prefold.measurement.benefit.compare import MIN_ROUNDS, Comparison, compare
from prefold.measurement.benefit.timelines import timeline_of
from prefold.measurement.definitions.profiles import PREFOLD
from prefold.measurement.ledger.reader import LedgerRow
from tests.support.benefit import SLICE_S, START, by_slices, conversation, row


def read(rows: Sequence[LedgerRow]) -> Benefit:
    reading = Reading(PREFOLD, "arm", by_time=True)
    reading.read(rows)
    return reading.benefit()


def only(rows: Sequence[LedgerRow]) -> Comparison:
    [comparison] = read(rows).comparisons
    return comparison


def effects(found: Comparison) -> list[str]:
    return [told.metric for told in found.differences if told.interval and told.interval.effect]


class Shuffled:
    """One ledger whose arms are drawn again and again, by rounds, as the proxy draws them."""

    def __init__(self, seed: int, rounds: int, requests: int = 12) -> None:
        made = by_slices(seed, rounds=rounds, requests=requests)
        self._rows = [one for one in made if one.arm is not None]
        self._views = [PREFOLD.view(timeline_of(one)) for one in self._rows]
        self._rounds = rounds

    def compared(self, seed: int, *, by_rounds: bool) -> Comparison:
        """By rounds, or as if each conversation had been drawn by itself."""
        first = np.random.default_rng(seed).integers(0, 2, self._rounds)
        sides = Columns(PREFOLD), Columns(PREFOLD)
        for one, view in zip(self._rows, self._views, strict=True):
            assert one.slice_start is not None
            assert one.conversation is not None
            number = round((one.slice_start - START) / SLICE_S)
            side = (first[number // 2] + number) % 2
            unit = number if by_rounds else int.from_bytes(one.conversation, "little")
            sides[side].add(one, view, unit)
        [found] = compare(
            ("control", sides[0]),
            {"treated": sides[1]},
            PREFOLD,
            np.empty(0, dtype=np.int64),
            curves=False,
            seed=seed,
            rounds=np.arange(2 * self._rounds) // 2 if by_rounds else None,
        )
        return found


@pytest.mark.parametrize("rounds", [MIN_ROUNDS, 60])
def test_where_nothing_differs_nothing_is_found(rounds: int) -> None:
    """A/A: in 90 of 100 repetitions and more, although the load drifts over the day."""
    shuffled = Shuffled(1, rounds)
    silent = 0
    for seed in range(100):
        found = shuffled.compared(seed, by_rounds=True)
        silent += not effects(found)
        assert bool(effects(found)) == ("no effect" not in found.verdict or ";" in found.verdict)

    assert silent >= 90


def test_resampling_conversations_would_be_too_sure() -> None:
    """Those of a slice share its load: where nothing differs, most reports would tell an effect."""
    shuffled = Shuffled(1, MIN_ROUNDS, requests=40)
    wrong = [bool(effects(shuffled.compared(seed, by_rounds=False))) for seed in range(10)]

    assert sum(wrong) > 5


def test_a_true_effect_is_found_and_its_bounds_hold_it() -> None:
    """80 ms of TTFT and a fifth of the prompts' tokens; nothing else differs."""
    found = only(by_slices(2, rounds=60, ms_less=80, reuse=0.2))
    by_name = {told.metric: told for told in found.differences}
    ttft, cached = by_name["ttft_ms"].interval, by_name["cached_share"].interval

    assert ttft is not None
    assert ttft.low < -80 < ttft.high < 0
    assert ttft.clusters == 60
    assert cached is not None
    assert 0 < cached.low < 0.2 < cached.high
    assert set(effects(found)) == {"ttft_ms", "e2e_ms", "cached_share"}


def test_bounds_hold_the_truth_as_often_as_they_say() -> None:
    """Those of one figure alone, 94 % with Bonferroni's share for seven: of 60 ledgers, 55."""
    held = 0
    for seed in range(60):
        [told] = [
            one
            for one in only(by_slices(100 + seed, rounds=25, requests=4, ms_less=30)).differences
            if one.metric == "ttft_ms"
        ]
        assert told.interval is not None
        held += told.interval.low < -30 < told.interval.high

    assert held >= 55


def test_what_caches_hold_is_compared_and_nothing_by_it() -> None:
    """It is the arms' own doing: neither a curve nor a part of the prompts is told apart by it."""
    found = only(by_slices(3, ms_less=30, reuse=0.2))

    assert found.curve is None
    assert {told.metric for told in found.differences}.isdisjoint(
        ("ttft_cached_ms", "ttft_uncached_ms")
    )
    assert "points" in found.verdict
    assert "cached share of prompt tokens" in found.verdict


def test_too_few_rounds_are_said_to_be_too_few() -> None:
    """However many requests they have, and however great the effect."""
    found = only(by_slices(4, rounds=MIN_ROUNDS - 1, requests=200, ms_less=50))

    assert found.verdict == (
        f"treated against control: not enough data yet: {MIN_ROUNDS - 1} of {MIN_ROUNDS} slices of"
        " each, in the same rounds"
    )
    assert all(told.interval is None for told in found.differences)


def test_a_wash_out_counts_for_no_arm() -> None:
    """Whatever came in it; its requests are in the totals."""
    rows = by_slices(5)
    washed = [one for one in rows if one.arm is None]
    slow = [
        row(number, arm=None, slice_start=one.slice_start, round_start=one.round_start, ttft=60.0)
        for number, one in enumerate(rows, len(rows) + 1)
    ]
    alone, together = read(rows), read([*rows, *slow])

    assert together.comparisons == alone.comparisons
    assert together.slicing is not None
    assert together.slicing.washout_requests == len(washed) + len(slow)
    assert together.total.requests == len(rows) + len(slow)
    assert together.slicing.slices == {"control": 40, "treated": 40}
    assert together.slicing.rounds == 40


def test_a_slice_of_two_arms_is_in_no_difference() -> None:
    """Arms were changed while it was; neither is its round."""
    rows = by_slices(6)
    first = next(one for one in rows if one.arm == "control")
    spoilt = row(
        90_000,
        arm="treated",
        slice_start=first.slice_start,
        round_start=first.round_start,
        ttft=60.0,
    )
    told = read([*rows, spoilt])
    [found] = told.comparisons

    assert told.slicing is not None
    assert told.slicing.mixed_slices == 1
    assert told.slicing.rounds == 39
    assert {one.units for one in found.differences} == {39}


def test_arms_of_conversations_are_not_mixed_with_those_of_slices() -> None:
    """They are another experiment: counted, and in no difference."""
    rows = by_slices(7)
    others = [
        row(90_000 + number, arm="treated", conversation=conversation(number), ttft=60.0)
        for number in range(100)
    ]
    told = read([*rows, *others])

    assert told.slicing is not None
    assert told.slicing.unsliced_requests == 100
    assert told.comparisons == read(rows).comparisons


def test_caches_that_had_not_settled_are_told() -> None:
    """By the cached share of the later half of slices, against that of the earlier; not where they
    had."""
    unsettled = read(by_slices(8, reuse=0.3, unsettled=0.5)).slicing
    settled = read(by_slices(8, reuse=0.3)).slicing
    assert unsettled is not None
    assert settled is not None
    late = unsettled.settling["treated"]

    assert unsettled.unsettled == ["treated"]
    assert late is not None
    assert late.low < 0.15 < late.high
    assert settled.unsettled == []
