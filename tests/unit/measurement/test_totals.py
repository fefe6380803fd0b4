"""Prometheus and /report: the same records, the same sums."""

from typing import Any

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from prefold.measurement.books import ITL_SECONDS, Books
from prefold.measurement.prometheus import BackendGauges, Metrics
from prefold.measurement.record import RequestOutcome, RequestRecord
from prefold.measurement.report import report

GAUGES = BackendGauges(
    backend="b",
    state="up",
    mode="feedback",
    in_flight=1,
    queued_tokens=200,
    prefill_tokens_per_s=1000.0,
    believed_tokens=4096,
    prediction_error=0.25,
)


def ok(reported: int | None, *, prompt: int | None = 100, expected: int = 80) -> RequestRecord:
    return RequestRecord(
        endpoint="/v1/chat/completions",
        received=0.0,
        model="m",
        backend="b",
        mode="feedback",
        reason="prefix",
        outcome=RequestOutcome.OK,
        status=200,
        attempts=1,
        prompt_tokens=prompt,
        reported_tokens=reported,
        expected_tokens=expected,
        available_tokens=90,
        tokens=[0.1, 0.15, 0.2],
        parsed=0.001,
        encoded=0.002,
        matched=0.003,
        chosen=0.004,
        end=0.3,
    )


def samples(metrics: Metrics) -> dict[str, float]:
    """name{values of the labels, in order of their names}: value"""
    return {
        f"{sample.name}{{{','.join(value for _, value in sorted(sample.labels.items()))}}}": (
            sample.value
        )
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
    }


def observe(*records: RequestRecord) -> tuple[dict[str, float], dict[str, Any]]:
    books = Books()
    for record in records:
        books.add(record)
    return samples(Metrics(books, lambda: [GAUGES])), report(books)


def test_savings_are_claimed_from_reported_tokens_only() -> None:
    """A request whose engine reports nothing is counted beside the claim, not as zero in it."""
    seen, shown = observe(ok(60), ok(0), ok(None))

    assert seen["prefold_saved_prefill_tokens_total{b,m}"] == 60
    assert seen["prefold_prompt_tokens_total{b,m}"] == 200
    assert seen["prefold_unreported_requests_total{b,m}"] == 1
    assert seen["prefold_expected_cached_tokens_total{b,m}"] == 240
    assert seen["prefold_prediction_error_tokens_total{b,m}"] == 20 + 80
    total = shown["total"]
    assert (total["prompt_tokens"], total["prefill_tokens_saved"]) == (200, 60)
    assert total["prefill_tokens_computed"] == 140
    assert total["requests_without_reported_cache"] == 1


def test_prediction_is_measured_both_ways_and_by_mode() -> None:
    """Two sums that only rise, and their difference; what was corrected is counted beside them."""
    records = [ok(60), ok(100), ok(None), ok(90)]
    records[1].lost_tokens, records[1].found_tokens, records[1].emptied = 7, 3, True
    records[3].mode = "events"
    seen, shown = observe(*records)

    assert seen["prefold_overexpected_tokens_total{b,feedback}"] == 20
    assert seen["prefold_underexpected_tokens_total{b,feedback}"] == 20
    assert seen["prefold_underexpected_tokens_total{b,events}"] == 10
    assert seen["prefold_index_lost_tokens_total{b}"] == 7
    assert seen["prefold_index_found_tokens_total{b}"] == 3
    assert seen["prefold_caches_emptied_total{b}"] == 1
    assert shown["backends"]["b"]["prediction"] == {
        "feedback": {
            "requests": 2,
            "reported_tokens": 160,
            "error_tokens": 40,
            "signed_error_tokens": 0,
        },
        "events": {
            "requests": 1,
            "reported_tokens": 90,
            "error_tokens": 10,
            "signed_error_tokens": -10,
        },
    }
    corrections = {"lost_tokens": 7, "found_tokens": 3, "caches_emptied": 1}
    assert shown["total"]["index_corrections"] == corrections


def test_an_engine_that_never_reports_leaves_savings_unknown() -> None:
    """None in the report, no sample in the metrics."""
    seen, shown = observe(ok(None))
    total = shown["total"]

    assert total["prefill_tokens_saved"] is None
    assert total["prefill_tokens_computed"] is None
    assert "prefold_saved_prefill_tokens_total{b,m}" not in seen


def test_failed_requests_are_counted_and_not_timed() -> None:
    """A fast refusal must not make the latencies look good."""
    failed = ok(60)
    failed.outcome = RequestOutcome.UPSTREAM_FAILED
    refused = RequestRecord(endpoint="/v1/completions", received=0.0, status=400, end=0.001)
    seen, shown = observe(failed, refused)

    assert seen["prefold_requests_total{b,/v1/chat/completions,upstream_failed}"] == 1
    assert seen["prefold_requests_total{,/v1/completions,rejected}"] == 1
    assert "prefold_ttft_seconds_count{b,m}" not in seen
    assert shown["total"]["e2e_ms"]["count"] == 0
    assert shown["backends"]["b"]["outcomes"] == {"upstream_failed": 1}


def test_prefill_and_decode_times_are_separate_series() -> None:
    """TTFT once a request, ITL once a gap, each stage of the overhead once."""
    seen, shown = observe(ok(60), ok(60))

    assert seen["prefold_ttft_seconds_count{b,m}"] == 2
    assert seen["prefold_itl_seconds_count{b,m}"] == 4
    assert seen["prefold_e2e_seconds_count{b,m}"] == 2
    for stage in ("parse", "encode", "match", "choose"):
        assert seen[f"prefold_overhead_seconds_count{{{stage}}}"] == 2
    assert seen["prefold_routing_decisions_total{b,feedback,prefix}"] == 2
    assert shown["total"]["itl_ms"]["count"] == 4


def test_backend_gauges_are_read_when_scraped() -> None:
    """They are the state at that moment, not a copy kept in step."""
    seen, _ = observe()

    assert seen["prefold_backend_state{b,up}"] == 1
    assert seen["prefold_backend_mode{b,feedback}"] == 1
    assert seen["prefold_in_flight_requests{b}"] == 1
    assert seen["prefold_queued_prefill_tokens{b}"] == 200
    assert seen["prefold_prefill_tokens_per_second{b}"] == 1000
    assert seen["prefold_believed_cached_tokens{b}"] == 4096
    assert seen["prefold_prediction_error_ratio{b}"] == 0.25


def test_a_histogram_is_the_librarys() -> None:
    """Buckets are cumulative, bounds inclusive, sum and count as the Prometheus client's own."""
    registry = CollectorRegistry()
    theirs = Histogram(
        "prefold_itl_seconds", "X", ("model", "backend"), registry=registry, buckets=ITL_SECONDS
    )
    gaps = (0.0025, 0.004, 0.2, 7.0)
    record = ok(60)
    record.tokens = [sum(gaps[:count]) for count in range(len(gaps) + 1)]
    for gap in record.itl_s:
        theirs.labels("m", "b").observe(gap)
    expected = {
        line
        for line in generate_latest(registry).decode().splitlines()
        if line.startswith("prefold_itl_seconds_") and "_created" not in line
    }
    books = Books()
    books.add(record)
    shown = set(Metrics(books, list).exposition().decode().splitlines())

    assert expected <= shown
