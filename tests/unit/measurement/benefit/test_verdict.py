"""Verdicts are true of the data: known effects are found, and where there is none, none is said."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from prefold.measurement.benefit.benefit import Benefit, BenefitError, Reading
from prefold.measurement.benefit.columns import Columns, Conversations, uncached_before
from prefold.measurement.benefit.compare import MIN_CONVERSATIONS, Comparison, compare
from prefold.measurement.benefit.timelines import timeline_of
from prefold.measurement.definitions.profiles import GUIDELLM, PREFOLD
from prefold.measurement.ledger.reader import LedgerRow
from tests.support.benefit import conversation, experiment, row


def read(
    rows: Sequence[LedgerRow], *, by: str | None = "arm", control: str | None = None
) -> Benefit:
    reading = Reading(PREFOLD, by)
    reading.read(rows)
    return reading.benefit(control)


def only(rows: Sequence[LedgerRow]) -> Comparison:
    [comparison] = read(rows).comparisons
    return comparison


def test_a_known_effect_is_found_with_bounds_that_hold_it() -> None:
    """Half of the prefill at 10,000 tokens a second, less 20 ms; and none on decode or errors."""
    rows = experiment(1, conversations=600, fixed_ms=20, share=0.5)
    comparison = only(rows)
    by_name = {told.metric: told for told in comparison.differences}
    ttft = by_name["ttft_ms"].interval
    uncached = np.mean([uncached_before(one) or 0 for one in rows])
    slow = np.exp(0.2**2)  # the mean of two lognormal factors of 0.2 each
    truth = 20 - 0.5 * uncached / 10_000 * 1000 * slow

    assert ttft is not None
    assert ttft.low < truth < ttft.high < 0
    tpot = by_name["tpot_ms"].interval
    assert tpot is not None
    assert not tpot.effect
    said = f"{ttft.difference:+.1f} ms [{ttft.low:+.0f}, {ttft.high:+.1f}] TTFT;"
    assert comparison.verdict.startswith(f"treated against control: {said}")
    assert "TPOT" not in comparison.verdict
    assert "failed" not in comparison.verdict


def test_where_it_begins_to_pay_is_told_with_bounds() -> None:
    """60 ms spent, half of the prefill saved: 1,200 uncached tokens at 10,000 a second, less the
    4 % by which the mean of the noise is above one."""
    comparison = only(experiment(2, conversations=1500, fixed_ms=60, share=0.5))
    assert comparison.curve is not None
    crossing = comparison.curve.crossing

    assert crossing is not None
    assert crossing.low < 1200 / 1.04 < crossing.high
    assert crossing.high - crossing.low < 1000
    assert f"pays above {crossing.tokens:,.0f} uncached tokens [" in comparison.verdict


def test_what_only_costs_has_no_crossing() -> None:
    """30 ms more, whatever the prompt."""
    comparison = only(experiment(3, conversations=600, fixed_ms=60))

    assert comparison.curve is not None
    assert comparison.curve.shape == "costs"
    assert comparison.curve.crossing is None
    assert "costs for sure in" in comparison.verdict
    assert "no crossing in the data" in comparison.verdict


def test_too_few_conversations_are_said_to_be_too_few() -> None:
    """However great the effect, and however many requests they have."""
    rows = experiment(4, conversations=2 * MIN_CONVERSATIONS - 2, share=0.9, fixed_ms=-20)
    comparison = only(rows)

    assert comparison.verdict == (
        f"treated against control: not enough data yet: {MIN_CONVERSATIONS - 1} of"
        f" {MIN_CONVERSATIONS} conversations in the smaller group"
    )
    assert all(told.interval is None for told in comparison.differences)


def test_without_conversations_there_is_nothing_to_compare() -> None:
    """Their requests are counted, and in no difference: they may all be one conversation."""
    rows = [
        row(number, arm=("control", "treated")[number % 2], conversation=None)
        for number in range(400)
    ]
    made = read(rows)

    assert made.total.without_conversation == 400
    assert made.comparisons[0].differences == ()
    assert "not enough data yet: 0 of" in made.comparisons[0].verdict


def test_a_conversation_in_two_arms_is_left_out() -> None:
    """It was changed from one to the other by new weights: its cache is that of both."""
    rows = experiment(5, conversations=200)
    mixed = [
        row(len(rows) + number, arm=arm, conversation=conversation(10_000), ttft=60.0)
        for number, arm in enumerate(("control", "treated", "treated"), 1)
    ]
    alone, together = read(rows), read([*rows, *mixed])

    assert together.mixed_conversations == 1
    assert together.comparisons[0].differences == alone.comparisons[0].differences
    assert together.total.requests == alone.total.requests + 3


def test_answers_that_were_not_streamed_have_a_verdict_of_their_own() -> None:
    """There is no TTFT of them, in no arm."""
    rows = [
        row(
            number,
            arm=("control", "treated")[number % 2],
            streamed=False,
            tokens=[],
            other_events=[],
            end=1.0 + 0.001 * (number % 7) - 0.2 * (number % 2),
        )
        for number in range(200)
    ]
    comparison = only(rows)

    assert {told.metric for told in comparison.differences} == {"unstreamed_ms", "output_tokens"}
    assert comparison.verdict.endswith("] answers not streamed")
    assert "-200 ms" in comparison.verdict


def test_a_part_that_is_the_whole_is_not_told_again() -> None:
    """Where no prompt was cached, the uncached ones are all of them."""
    rows = [
        row(number, arm=("control", "treated")[number % 2], uncached=1000) for number in range(200)
    ]
    names = {told.metric for told in only(rows).differences}

    assert "ttft_ms" in names
    assert not names & {"ttft_cached_ms", "ttft_uncached_ms"}


def test_groups_that_were_not_drawn_by_lot_have_no_curve() -> None:
    """What was sent to a backend may make the difference."""
    made = read(experiment(6), by="backend")

    assert not made.randomised
    assert all(comparison.curve is None for comparison in made.comparisons)


def test_the_control_is_named_or_found() -> None:
    """The one called control, else the greater one; requests without an arm are none."""
    rows = [*experiment(7, arms=("a", "b", "a")), row(9000, arm=None)]
    assert [one.control for one in read(rows).comparisons] == ["a"]
    assert [one.control for one in read(rows, control="b").comparisons] == ["b"]
    assert [one.control for one in read(experiment(7)).comparisons] == ["control"]
    with pytest.raises(BenefitError, match="no group 'c' to compare with; there are: a, b"):
        read(rows, control="c")
    assert read(experiment(7, arms=("a",))).comparisons == ()
    assert [group.name for group in read(rows).groups] == ["(none)", "a", "b"]


def test_decode_is_compared_by_what_has_no_prefill_in_it() -> None:
    """guidellm's TPOT has."""
    reading = Reading(GUIDELLM, "arm")
    reading.read(experiment(8))
    names = {told.metric for told in reading.benefit().comparisons[0].differences}

    assert "itl_ms" in names
    assert "tpot_ms" not in names


def test_shuffled_arms_have_no_effect() -> None:
    """A/A: in 90 of 100 repetitions and more, nothing at all of a report is said to differ."""
    rows = experiment(9, conversations=120, arms=("any",))
    views = [PREFOLD.view(timeline_of(one)) for one in rows]
    numbers = Conversations()
    talks = [numbers.number(one.conversation) for one in rows]
    silent = 0
    for seed in range(100):
        drawn = np.random.default_rng(seed).permutation(max(talks) + 1) % 2
        sides = Columns(PREFOLD), Columns(PREFOLD)
        for one, view, talk in zip(rows, views, talks, strict=True):
            sides[drawn[talk]].add(one, view, talk)
        [found] = compare(
            ("control", sides[0]),
            {"treated": sides[1]},
            PREFOLD,
            np.empty(0, dtype=np.int64),
            curves=True,
            seed=seed,
        )
        effects = [told for told in found.differences if told.interval and told.interval.effect]
        silent += not effects
        assert bool(effects) == ("no effect" not in found.verdict or ";" in found.verdict)

    assert silent >= 90
