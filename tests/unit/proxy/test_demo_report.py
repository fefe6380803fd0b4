"""The demo's arithmetic: percentiles, what is unknown, what goes into the JSON."""

from __future__ import annotations

import dataclasses
import json

import pytest

from prefold.proxy.demo.arm import Arm, ArmRun, Counters, Policy, difference
from prefold.proxy.demo.client import Sample, parse_decision
from prefold.proxy.demo.report import (
    ArmReport,
    as_data,
    conclusion,
    percentiles,
    ratio,
    summarise,
    total,
)
from prefold.proxy.demo.run import DemoOptions, as_json, plan_arms
from prefold.proxy.demo.table import complaints

GOOD = Sample(
    backend="engine-0",
    mode="feedback",
    prompt_tokens=100,
    cached_tokens=60,
    ttft_s=0.2,
    gaps_s=(0.01, 0.03),
    e2e_s=0.24,
)
OPTIONS = DemoOptions(
    requests=2, tenants=4, prefix_tokens=350, seed=1, slots=2, clients=2, roomy=True
)


def run(*samples: Sample, policy: Policy = "prefix", counters: Counters | None = None) -> ArmRun:
    arm = Arm(policy=policy, cache="tight", backends=2, slots=2, context_per_slot=1024, clients=2)
    counted = counters or Counters(computed_tokens=40, cached_tokens=60)
    nothing = Counters(computed_tokens=0, cached_tokens=0)
    return ArmRun(
        arm=arm,
        samples=samples,
        counters={"engine-0": counted, "engine-1": nothing},
        wall_s=1.234,
    )


def test_percentiles_are_times_that_were_measured() -> None:
    """Nearest rank: p50 of two is the smaller, p99 of less than a hundred the largest."""
    assert percentiles([0.3, 0.1]) == {"p50": 100.0, "p90": 300.0, "p99": 300.0}
    hundred = [(n + 1) / 1000 for n in range(100)]
    assert percentiles(hundred) == {"p50": 50.0, "p90": 90.0, "p99": 99.0}
    assert percentiles([]) == {"p50": None, "p90": None, "p99": None}


def test_unknown_is_not_zero() -> None:
    """One unknown makes a sum unknown; no values at all are unknown too."""
    assert total([1, 2]) == 3
    assert total([1, None]) is None
    assert total([]) is None
    assert ratio(None, 2) is None
    assert ratio(2, None) is None
    assert ratio(2, 0) is None
    assert ratio(1, 4) == 0.25


def test_a_summary_adds_up() -> None:
    """Computed is prompt less cached; gaps are pooled over requests; shares are by backend."""
    other = dataclasses.replace(
        GOOD, backend="engine-1", cached_tokens=0, gaps_s=(0.05,), ttft_s=0.4
    )
    report = summarise(run(GOOD, other))

    assert (report.requests, report.errors) == (2, 0)
    assert report.prompt_tokens == 200
    assert report.prefill_tokens_saved == 60
    assert report.prefill_tokens_computed == 140
    assert report.ttft_ms == {"p50": 200.0, "p90": 400.0, "p99": 400.0}
    assert report.itl_ms["p50"] == 30.0
    assert [share.requests for share in report.backends] == [1, 1]
    assert report.modes == {"feedback": 2}


def test_a_request_without_cached_tokens_makes_the_totals_unknown() -> None:
    """A missing report must not look like a computed or a saved token."""
    report = summarise(run(GOOD, dataclasses.replace(GOOD, cached_tokens=None)))

    assert report.prompt_tokens == 200
    assert report.prefill_tokens_saved is None
    assert report.prefill_tokens_computed is None
    assert report.counters_agree is None
    assert any("unknown" in complaint for complaint in complaints(report))


def test_errors_are_counted_and_said() -> None:
    """A failed request is in `requests` and `errors`, and in no percentile."""
    report = summarise(run(GOOD, Sample(error="APITimeoutError")))

    assert (report.requests, report.errors) == (2, 1)
    assert report.error_kinds == {"APITimeoutError": 1}
    assert report.ttft_ms["p99"] == 200.0
    assert "1 x APITimeoutError" in complaints(report)[0]


@pytest.mark.parametrize(("counted", "agrees"), [(40, True), (41, False), (None, None)])
def test_usage_is_checked_against_the_engines_counters(
    counted: int | None, agrees: bool | None
) -> None:
    """A difference is said; a counter that is not there proves nothing."""
    counters = Counters(computed_tokens=counted, cached_tokens=None)
    report = summarise(run(GOOD, counters=counters))

    assert report.counters_agree is agrees
    assert len(complaints(report)) == (1 if agrees is False else 0)


def test_counters_are_compared_from_start_to_end() -> None:
    """What the engine counted before the arm is not the arm's."""
    before = Counters(computed_tokens=7, cached_tokens=None)
    after = Counters(computed_tokens=50, cached_tokens=3)

    assert difference(after, before) == Counters(computed_tokens=43, cached_tokens=None)


def test_the_conclusion_uses_the_same_words_for_either_winner() -> None:
    """It is computed: swapping the arms swaps the numbers, and nothing is claimed beside them."""
    slow = dataclasses.replace(GOOD, cached_tokens=0, ttft_s=0.8)
    cheap, dear = summarise(run(GOOD)), summarise(run(slow, policy="round_robin"))

    assert conclusion(dear, cheap) == (
        "With the tight cache, prefix routing computed 40 prefill tokens where round robin took "
        "100 (0.40x); its median TTFT was 200 ms where round robin took 800 (0.25x)."
    )
    assert "100 prefill tokens where round robin took 40 (2.50x)" in conclusion(cheap, dear)
    unknown = summarise(run(dataclasses.replace(GOOD, cached_tokens=None)))
    assert "an unknown part" in conclusion(dear, unknown)


def test_the_json_has_one_entry_per_policy_in_arms() -> None:
    """A reader that looks an arm up by policy finds the tight cache; the roomy has its own key."""
    reports = [summarise(run(GOOD, policy=policy)) for policy in ("round_robin", "prefix")]
    data = json.loads(as_json(OPTIONS, plan_arms(OPTIONS), reports, reports))

    assert [arm["policy"] for arm in data["arms"]] == ["round_robin", "prefix"]
    assert {arm["cache"] for arm in data["arms"]} == {"tight"}
    assert len(data["arms_roomy"]) == 2
    assert {field.name for field in dataclasses.fields(ArmReport)} <= set(data["arms"][0])
    assert data["arms"][0] == json.loads(json.dumps(as_data(reports[0])))
    assert data["settings"]["seed"] == 1
    assert {"cpu", "cores", "memory_gib", "os", "python", "prefold", "engine", "model"} == set(
        data["machine"]
    )


def test_the_order_of_policies_is_drawn_from_the_seed_for_both_caches() -> None:
    """Both orders occur, and a roomy backend has a slot for every tenant."""
    orders = set()
    for seed in range(10):
        arms = plan_arms(dataclasses.replace(OPTIONS, seed=seed))
        assert [arm.cache for arm in arms] == ["tight", "tight", "roomy", "roomy"]
        assert [arm.policy for arm in arms[:2]] == [arm.policy for arm in arms[2:]]
        assert [arm.slots for arm in arms] == [2, 2, 4, 4]
        orders.add(arms[0].policy)
    assert orders == {"round_robin", "prefix"}


def test_the_decision_header_is_read_by_name() -> None:
    """Absent or odd headers give nothing rather than a wrong backend."""
    header = "backend=engine-1; reason=cache; mode=feedback; expected_cached_tokens=348"

    assert parse_decision(header)["backend"] == "engine-1"
    assert parse_decision(header)["mode"] == "feedback"
    assert parse_decision("") == {}
    assert parse_decision("nonsense") == {}
