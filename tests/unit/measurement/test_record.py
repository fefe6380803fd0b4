"""Figures out of one request's raw moments."""

import pytest

from prefold.measurement.record import RequestRecord


def test_latencies_are_counted_from_tokens_not_from_the_end_of_the_stream() -> None:
    """5 tokens, last one at 500 ms, first one at 100 ms: TTFT 100 ms, four gaps of 100 ms."""
    record = RequestRecord(endpoint="x", received=10.0)
    record.tokens = [10.1, 10.2, 10.3, 10.4, 10.5]
    record.end = 11.0

    assert record.ttft_s == pytest.approx(0.1)
    assert record.itl_s == pytest.approx([0.1] * 4)
    assert record.e2e_s == pytest.approx(0.5)


def test_what_did_not_happen_is_none() -> None:
    """No token, no TTFT; a body that was not streamed ends with its end."""
    record = RequestRecord(endpoint="x", received=10.0)
    assert (record.ttft_s, record.itl_s, record.e2e_s, dict(record.stages_s())) == (
        None,
        [],
        None,
        {},
    )
    record.end = 12.0

    assert record.e2e_s == 2.0


def test_stages_add_up_to_the_time_before_the_upstream_call() -> None:
    """Each begins where the one before ends; one that was not reached is left out."""
    record = RequestRecord(endpoint="x", received=0.0)
    record.parsed, record.encoded, record.matched = 1.0, 3.0, 3.5
    assert dict(record.stages_s()) == {"parse": 1.0, "encode": 2.0, "match": 0.5}
    record.chosen = 4.0

    assert sum(dict(record.stages_s()).values()) == 4.0
