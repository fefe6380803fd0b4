"""What a group adds up to: reported savings, unknowns apart, percentiles, goodput."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from prefold.measurement.benefit.benefit import Reading
from prefold.measurement.benefit.columns import uncached_before
from prefold.measurement.benefit.prefill import Rate
from prefold.measurement.benefit.tally import Group, Tally
from prefold.measurement.benefit.timelines import timeline_of
from prefold.measurement.definitions.profiles import PREFOLD, PROFILES, VLLM
from prefold.measurement.definitions.timeline import Kind
from prefold.measurement.ledger.reader import LedgerRow
from tests.support.benefit import row

RATE = Rate(seconds_per_token=0.001, low=0.0005, high=0.002, overhead_s=0.0, requests=100)


def figures(
    *rows: LedgerRow,
    limits: Mapping[str, float] | None = None,
    rates: Mapping[str, Rate] | None = None,
) -> Group:
    tally = Tally("g", PREFOLD, limits or {})
    for number, one in enumerate(rows):
        tally.add(one, number, number)
    return tally.figures(rates or {})


def test_savings_are_those_that_engines_reported() -> None:
    """What was expected saves nothing, and what is unknown is no zero."""
    made = figures(
        row(1),
        row(2, reported_tokens=None),
        row(3, prompt_tokens=None, reported_tokens=None),
        row(4, uncached=1000),
        row(5, outcome="upstream_failed"),
    ).savings

    assert (made.requests, made.unreported_requests) == (2, 2)
    assert (made.saved_tokens, made.prompt_tokens, made.share) == (600, 2000, 0.3)


def test_nothing_reported_is_unknown() -> None:
    """None to the end of the report."""
    made = figures(row(1, reported_tokens=None)).savings

    assert (made.saved_tokens, made.prompt_tokens, made.share, made.prefill) == (None,) * 4


def test_seconds_saved_are_those_of_each_backends_rate() -> None:
    """Tokens on a backend without a rate are counted apart; without any rate it is unknown."""
    rows = [row(1), row(2, backend="b1", uncached=900)]
    made = figures(*rows, rates={"b0": RATE}).savings.prefill

    assert made is not None
    assert (made.seconds, made.low, made.high) == pytest.approx((0.6, 0.3, 1.2))
    assert made.unpriced_tokens == 100
    assert figures(*rows).savings.prefill is None


def test_percentiles_are_of_answers_and_failures_are_told_apart() -> None:
    """A client that left is no failure, and no answer either."""
    made = figures(
        row(1, ttft=0.1),
        row(2, ttft=0.3),
        row(3, ttft=9.0, outcome="upstream_failed"),
        row(4, ttft=9.0, outcome="client_gone"),
    )

    assert (made.requests, made.failed) == (4, 1)
    assert made.outcomes == {"client_gone": 1, "ok": 2, "upstream_failed": 1}
    assert made.backends == {"b0": 4}
    assert made.metrics["ttft_ms"].count == 2
    assert made.metrics["ttft_ms"].mean == pytest.approx(200)
    assert made.metrics["gap_ms"].count == 4


def test_gaps_that_were_not_kept_are_not_told() -> None:
    """Of a ledger that keeps only the first and the last token's time: these two are no gap."""
    kept_ends = row(1, tokens=[0.1, 2.0], last_token=2.0, other_events=[], output_tokens=20)
    made = figures(kept_ends)

    assert made.metrics["gap_ms"].count == made.metrics["gap_max_ms"].count == 0
    assert made.metrics["tpot_ms"].mean == pytest.approx(100)
    assert figures(row(1, gaps=[1.9])).metrics["gap_ms"].count == 1


def test_goodput_is_the_share_within_every_limit() -> None:
    """Failures are not; who left is not asked; what is not defined limits nothing."""
    rows = [
        row(1, ttft=0.1),
        row(2, ttft=0.3),
        row(3, gaps=[0.2, 0.2]),
        row(4, outcome="upstream_failed"),
        row(5, outcome="client_gone"),
        row(6, streamed=False, tokens=[], other_events=[]),
    ]

    assert figures(*rows, limits={"ttft": 200, "tpot": 100}).goodput == pytest.approx(2 / 5)
    assert figures(*rows).goodput is None


def test_compression_is_told_of_what_the_compressor_saw() -> None:
    """Its time is from what came before it to its end; None: it did not see the prompt."""
    made = figures(
        row(1, removed_tokens=300, compressed=0.053),
        row(2, removed_tokens=0),
        row(3),
    ).compression

    assert made is not None
    assert (made.requests, made.removed_tokens) == (2, 300)
    assert made.seconds == pytest.approx(0.05)
    assert figures(row(1)).compression is None


def test_a_prompt_that_was_shortened_by_bytes_counts() -> None:
    """Where exact ids are not known, nobody knows how many tokens were removed, but when it was
    answered is known."""
    gate = {"predicted": 0.15, "fallback": 0.25, "compression_reason": "pays", "ttft": 0.2}
    made = figures(row(1, removed_tokens=None, compression="compressed", **gate)).compression

    assert made is not None
    assert (made.requests, made.removed_tokens, made.gated) == (1, 0, 1)
    assert made.gate["pays"].actual_gain_s == pytest.approx(0.05)


def test_a_gates_gain_is_told_as_predicted_and_as_it_was() -> None:
    """Of what was shortened only, against the same prediction for the prompt as it came."""
    gated = {"predicted": 0.15, "fallback": 0.25, "ttft": 0.2}
    made = figures(
        row(1, removed_tokens=300, **gated),
        row(2, removed_tokens=0, **gated),
        row(3, removed_tokens=300, **gated | {"predicted": None}),
        row(4, removed_tokens=300, **gated, outcome="cut_off"),
    ).compression

    assert made is not None
    assert made.gated == 1
    assert (made.predicted_gain_s, made.actual_gain_s) == pytest.approx((0.1, 0.05))


def test_a_gate_is_judged_by_reason() -> None:
    """Gains of what it chose to cut; errors of all whose first token was predicted and seen."""
    pays = {"predicted": 0.15, "fallback": 0.25, "compression_reason": "pays"}
    costs = {"predicted": 0.3, "fallback": 0.3, "compression_reason": "costs"}
    late = {"predicted": 0.1, "fallback": 0.4, "compression_reason": "late"}
    made = figures(
        row(1, removed_tokens=300, ttft=0.2, **pays),
        row(2, removed_tokens=300, ttft=0.1, **pays),
        row(3, removed_tokens=0, ttft=0.2, **costs),
        row(4, removed_tokens=0, ttft=0.6, **late),
        row(5, removed_tokens=0, tokens=[], **costs),
        row(6, removed_tokens=300, compression_reason="on"),
        row(7, removed_tokens=300, ttft=0.2, **pays | {"compression_reason": None}),
    ).compression

    assert made is not None
    assert list(made.gate) == ["costs", "late", "pays", "unknown"]
    one, two = made.gate["pays"], made.gate["late"]
    assert (one.requests, one.chosen) == (2, 2)
    assert (one.predicted_gain_s, one.actual_gain_s) == pytest.approx((0.2, 0.2))
    assert (one.error_s, one.absolute_error_s) == pytest.approx((0.0, 0.05))
    assert (two.predicted_gain_s, two.actual_gain_s) == pytest.approx((0.3, -0.2))
    assert (made.gate["costs"].chosen, made.gate["costs"].predicted_gain_s) == (0, None)
    assert made.gate["costs"].error_s == pytest.approx(-0.1)


def test_a_compressors_time_is_told_as_waited_and_as_spent() -> None:
    """None: of no request was it known."""
    made = figures(
        row(1, removed_tokens=300, compressor_waited=0.02, compressor_spent=0.05),
        row(2, removed_tokens=0, compressor_spent=0.01),
        row(3, removed_tokens=0),
    ).compression

    assert made is not None
    assert (made.waited_s, made.spent_s) == pytest.approx((0.02, 0.06))
    none = figures(row(1, removed_tokens=0)).compression
    assert none is not None
    assert (none.waited_s, none.spent_s) == (None, None)


def test_predictions_are_compared_where_both_are_known() -> None:
    """Errors do not cancel."""
    made = figures(
        row(1, expected_tokens=500),
        row(2, expected_tokens=700),
        row(3, expected_tokens=None),
        row(4, reported_tokens=None),
    ).prediction

    assert made is not None
    assert (made.requests, made.expected_tokens, made.reported_tokens) == (2, 1200, 1200)
    assert made.error_tokens == 200


def test_a_row_becomes_the_timeline_that_it_was() -> None:
    """In order, with kinds and counts; other events of unknown kinds are left out."""
    one = row(
        ttft=0.2,
        gaps=[0.1, 0.1],
        token_kinds=[(0, "reasoning"), (2, "content")],
        other_events=[(0.15, "role"), (0.41, "finish"), (0.42, "other"), (0.43, "done")],
    )
    made = timeline_of(one)

    assert [chunk.kind for chunk in made.chunks] == [
        Kind.ROLE, Kind.REASONING, Kind.REASONING, Kind.CONTENT, Kind.FINISH, Kind.DONE,
    ]  # fmt: skip
    assert made.usage is not None
    assert (made.usage.prompt_tokens, made.usage.completion_tokens, made.usage.cached) == (
        1000,
        3,
        600,
    )
    assert PREFOLD.view(made).first_s == pytest.approx(0.2)
    assert VLLM.view(made).first_s == pytest.approx(0.15)
    assert timeline_of(row(outcome="cut_off")).error == "cut_off"


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_every_profile_can_be_reported_by(profile: Any) -> None:
    """All of them define a TTFT, a decode metric and an E2E."""
    reading = Reading(profile, "arm")
    reading.read([row(number, arm=("a", "b")[number % 2]) for number in range(100)])
    made = reading.benefit()
    compared = {told.metric for told in made.comparisons[0].differences}

    assert made.profile == profile.label
    assert made.total.metrics["ttft_ms"].count == 100
    assert {"ttft_ms", "e2e_ms"} < compared
    assert compared & {"tpot_ms", "itl_ms"}


def test_a_shortened_prompt_counts_as_it_came() -> None:
    """What is believed to be cached is of the prompt as it was sent: its share is what counts, so
    that arms are compared by what was there before anything was done."""
    plain = row(1, prompt=1000, uncached=250)
    shortened = row(
        2, prompt=500, uncached=125, original_tokens=1000, sent_tokens=500, removed_tokens=500
    )
    by_engine = row(
        3, prompt=500, uncached=125, original_tokens=None, sent_tokens=None, removed_tokens=500
    )

    assert [uncached_before(one) for one in (plain, shortened, by_engine)] == [250.0] * 3
    assert uncached_before(row(4, available_tokens=None)) is None
    assert uncached_before(row(5, available_tokens=2000)) == 0
