"""What a diagnosis looks at, and the bounds of its figures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.measurement.diagnosis.diagnosis import diagnose
from prefold.measurement.diagnosis.sample import Clusters, bounds, ratio, sample_of
from tests.support.diagnosis import row


def test_only_streamed_answers_that_ended_well_are_looked_at() -> None:
    """Refusals are fast, and what broke off is short."""
    rows = [
        row(1.0),
        row(2.0, outcome="rejected"),
        row(3.0, tokens=[]),
        row(4.0, backend=None),
        row(5.0),
    ]
    sample = sample_of(rows)

    assert len(sample) == 2
    assert sample["prompt"].tolist() == [1000.0, 1000.0]


def test_the_latest_are_kept() -> None:
    """And how many were left out is told."""
    sample = sample_of([row(float(at), prompt=at) for at in range(10)], most=3)

    assert sample["prompt"].tolist() == [7.0, 8.0, 9.0]
    assert sample.left_out == 7


def test_unknown_tokens_stay_unknown() -> None:
    """None is no zero: such rows are in no figure of cached tokens."""
    sample = sample_of([row(cached=None), row(cached=400)])

    assert np.isnan(sample["uncached"][0])
    assert sample.known(sample["uncached"]).tolist() == [1]
    assert sample["uncached"][1] == 600


def test_the_queue_is_from_the_end_of_preparation_to_the_choice() -> None:
    """Compression, where it was, comes before it."""
    sample = sample_of([row(queue=0.5), row(queue=0.5, compressed=0.2, matched=0.5)])

    assert sample["queue"].tolist() == pytest.approx([0.5, 0.3])


@given(st.lists(st.tuples(st.integers(0, 30), st.floats(1, 100)), min_size=1, max_size=80))
def test_bounds_hold_the_value_and_need_conversations(drawn: list[tuple[int, float]]) -> None:
    """However unequal the conversations are; below 20 of them there are none."""
    numbers = np.array([number for number, _ in drawn])
    values = np.array([value for _, value in drawn])
    made = bounds(Clusters(np.arange(len(drawn)), numbers), ratio(values, np.ones(len(drawn))), 100)

    if len(set(numbers)) < 20:
        assert made is None
    else:
        assert made is not None
        assert made.value == pytest.approx(values.mean())
        assert values.min() <= made.low <= made.high <= values.max()
        assert made.clusters == len(set(numbers))


def test_requests_of_one_conversation_make_nothing_surer() -> None:
    """Ten times the same leaves the bounds as they are."""
    random = np.random.default_rng(1)
    values = random.exponential(size=40)
    once = bounds(Clusters(np.arange(40), np.arange(40)), lambda at: float(values[at].mean()))
    often = bounds(
        Clusters(np.tile(np.arange(40), 10), np.tile(np.arange(40), 10)),
        lambda at: float(values[at].mean()),
    )

    assert once is not None
    assert often is not None
    assert often.high - often.low == pytest.approx(once.high - once.low, rel=0.2)


def test_an_empty_ledger_answers_nothing() -> None:
    """Each question is there, and says what it needs."""
    made = diagnose(())

    assert made.requests == 0
    assert {answer.verdict for answer in made.answers} == {"unknown"}
    assert all(answer.needs for answer in made.answers)
