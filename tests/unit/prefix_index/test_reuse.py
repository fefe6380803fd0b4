from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefold.prefix_index.reuse import AGES, REFIT, YOUNGEST_S, ReuseEstimate

Observation = tuple[bool, int]
"""Whether blocks were reused (or evicted), and their age class."""


def age_s(number: int) -> float:
    """Some age within that class."""
    return YOUNGEST_S * 2 ** (number - 1) * 1.5 if number else 0.0


def learned(observations: Sequence[Observation], uses: int = 1) -> ReuseEstimate:
    """An estimate that saw these, in equal parts, up to its first fit."""
    estimate = ReuseEstimate()
    for turn in range(REFIT):
        reused, age = observations[turn % len(observations)]
        told = estimate.reused if reused else estimate.evicted
        told(uses, age_s(age), 1)
    return estimate


def test_what_is_held_counts_as_needed_until_something_is_known() -> None:
    """A new proxy prices an evicted token as one that will be computed again."""
    assert ReuseEstimate().value(1, 100.0) == 1.0


def test_old_blocks_that_nobody_asked_for_are_worth_little() -> None:
    """Half are used again young, the others are evicted old."""
    estimate = learned([(True, 2), (False, 10)])

    assert estimate.value(1, age_s(1)) == pytest.approx(0.5)
    assert estimate.value(1, age_s(2)) == pytest.approx(0.5)
    assert estimate.value(1, age_s(3)) == 0.0
    assert estimate.value(1, age_s(10)) == 0.0


def test_older_than_anything_seen_is_not_known() -> None:
    """Unknown is as before anything was learned."""
    assert learned([(True, 2), (False, 10)]).value(1, age_s(11)) == 1.0


def test_evicted_blocks_are_no_evidence_that_nobody_would_have_come() -> None:
    """Half leave before the age at which all that stayed were used: censored, not failed."""
    assert learned([(True, 5), (False, 2)]).value(1, age_s(1)) == 1.0


def test_blocks_that_were_used_before_are_told_apart() -> None:
    """A system prompt's blocks come back, one question's do not."""
    estimate = ReuseEstimate()
    for _ in range(REFIT // 2):
        estimate.evicted(1, age_s(4), 1)
        estimate.reused(7, age_s(4), 1)

    assert estimate.value(1, age_s(4)) == 0.0
    assert estimate.value(3, age_s(4)) == 1.0


def test_it_follows_a_change() -> None:
    """What was learned counts less the longer ago it was."""
    estimate = learned([(True, 4)])
    for _ in range(REFIT * 300):
        estimate.evicted(1, age_s(4), 1)

    assert estimate.value(1, age_s(4)) < 0.01


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, AGES - 1)), min_size=1, max_size=30))
def test_as_the_plain_product_limit_estimate(observations: list[Observation]) -> None:
    """Against the textbook's formula, from all observations."""
    estimate = learned(observations)
    seen = [observations[turn % len(observations)] for turn in range(REFIT)]

    for age in range(AGES):
        never, known = 1.0, any(at >= age for _, at in seen)
        for later in range(age, AGES):
            at_risk = sum(at >= later for _, at in seen)
            events = sum(reused and at == later for reused, at in seen)
            never *= 1 - events / at_risk if at_risk else 1.0
        expected = 1 - never if known else 1.0
        assert estimate.value(1, age_s(age)) == pytest.approx(expected)
