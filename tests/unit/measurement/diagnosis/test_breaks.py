"""What is said of the places where prompts part."""

from __future__ import annotations

import pytest

from prefold.measurement.diagnosis.answer import Verdict
from prefold.measurement.diagnosis.breaks import prefix_breaks, wilson
from prefold.measurement.divergence.record import ALIKE, Divergence, Kind
from prefold.measurement.divergence.tally import DivergenceTally


def tally(*parted: tuple[int, Kind, int], alike: int = 0) -> DivergenceTally:
    """So many times a kind at token 40, with so many tokens lost."""
    made = DivergenceTally()
    for count, kind, lost in parted:
        for _ in range(count):
            made.add(Divergence(kind=kind, template="ab", position=40, lost=lost))
    for _ in range(alike):
        made.add(ALIKE)
    return made


def test_what_costs_most_is_named_first() -> None:
    """With place, share, template and cost of each request."""
    answer = prefix_breaks(
        tally((30, Kind.UUID, 100), (60, Kind.TIMESTAMP, 4000), alike=210).report()
    )

    assert answer.verdict is Verdict.KNOWN
    assert answer.sentence.startswith(
        "a timestamp between tokens 32 and 64 parts 20% of the prompts (template ab), and costs"
        " each about 4,000 tokens of reuse; a UUID"
    )


def test_prompts_that_part_where_messages_begin_break_nothing() -> None:
    """Nor does what costs less than a few blocks."""
    answer = prefix_breaks(tally((900, Kind.MESSAGE, 0), (50, Kind.NUMBER, 3), alike=50).report())

    assert answer.verdict is Verdict.NO


@pytest.mark.parametrize("looked_at", [0, 99])
def test_few_prompts_tell_nothing(looked_at: int) -> None:
    """Without a proxy that looks, too."""
    assert prefix_breaks(tally((looked_at, Kind.UUID, 900)).report()).verdict is Verdict.UNKNOWN
    assert prefix_breaks(None).verdict is Verdict.UNKNOWN


def test_one_break_in_some_hundred_prompts_is_unclear() -> None:
    """It may be one in a hundred, or more."""
    answer = prefix_breaks(tally((3, Kind.UUID, 900), alike=297).report())

    assert answer.verdict is Verdict.UNCLEAR


def test_the_bounds_of_a_share_are_wilsons() -> None:
    """As in his table for 10 of 100, and never beyond 0 and 1."""
    assert wilson(0.1, 100) == pytest.approx((0.0552, 0.1744), abs=1e-3)
    assert wilson(0.0, 10)[0] == 0.0
    assert wilson(1.0, 10)[1] == 1.0
