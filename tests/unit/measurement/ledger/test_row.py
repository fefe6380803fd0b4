"""What goes into a ledger comes out of it again."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.measurement.ledger.reader import moments
from prefold.measurement.ledger.row import gaps_us
from prefold.measurement.record import RequestOutcome
from tests.support.ledger import SECRET, WALL, ledger, record, rows_of, rules

US = 1e-6


def test_a_request_comes_back_as_it_was(tmp_path: Path) -> None:
    """Every figure, every moment to the microsecond, the backend's labels, digests for keys."""
    kept = ledger(tmp_path / "l")
    kept.add(
        record(
            10.0,
            request_id="req-1",
            mode="feedback",
            reason="prefix",
            tenant="acme",
            arm="control",
            streamed=True,
            encoded_tokens=1100,
            removed_tokens=100,
            available_tokens=1024,
            expected_tokens=512,
            prompt_tokens=1001,
            reported_tokens=500,
            output_tokens=3,
            prefix_tokens=1100,
            parsed=10.001,
            encoded=10.002,
            matched=10.003,
            compressed=10.0035,
            compression="compressed",
            compression_reason="pays",
            predicted_token=10.09,
            fallback_token=10.3,
            compressor_waited_s=0.0004,
            compressor_spent_s=0.25,
            chosen=10.004,
            sent=10.005,
            headers=10.006,
            first_event=10.007,
            tokens=[10.1, 10.12, 10.7],
            token_kinds=[(0, "reasoning"), (1, "content")],
            other_events=[(10.008, "role"), (10.8, "done")],
            blocks=[2**64 - 1, 7],
            conversation=2**63,
        )
    )
    kept.write()

    [row] = rows_of(tmp_path / "l")
    assert row.received == WALL + 10.0
    assert (row.model, row.backend, row.labels) == ("m", "b0", {"gpu": "H200"})
    assert (row.request_id, row.tenant, row.arm) == ("req-1", "acme", "control")
    assert (row.mode, row.reason, row.outcome, row.status) == ("feedback", "prefix", "ok", 200)
    assert (row.streamed, row.attempts, row.error) == (True, 1, None)
    assert (row.original_tokens, row.removed_tokens, row.sent_tokens) == (1100, 100, 1000)
    assert (row.available_tokens, row.expected_tokens, row.reported_tokens) == (1024, 512, 500)
    assert (row.prompt_tokens, row.output_tokens, row.prefix_tokens) == (1001, 3, 1100)
    assert (row.parsed, row.encoded, row.matched) == (0.001, 0.002, 0.003)
    assert (row.compressed, row.leased, row.sent) == (0.0035, 0.004, 0.005)
    assert (row.compression, row.compression_reason) == ("compressed", "pays")
    assert (row.predicted, row.fallback) == (0.09, 0.3)
    assert (row.compressor_waited, row.compressor_spent) == (0.0004, 0.25)
    assert (row.headers, row.first_event, row.end) == (0.006, 0.007, 1.0)
    assert row.tokens == [0.1, 0.12, 0.7]
    assert (row.first_token, row.last_token) == (0.1, 0.7)
    assert row.token_kinds == [(0, "reasoning"), (1, "content")]
    assert row.other_events == [(0.008, "role"), (0.8, "done")]
    assert len(set(row.blocks)) == 2
    assert {len(digest) for digest in row.blocks} == {8}
    assert row.conversation is not None
    assert len(row.conversation) == 8


def test_what_is_unknown_stays_unknown(tmp_path: Path) -> None:
    """None, and never zero."""
    kept = ledger(tmp_path / "l")
    kept.add(record(model="", backend="", outcome=RequestOutcome.REJECTED, error="model_not_found"))
    kept.write()

    [row] = rows_of(tmp_path / "l")
    unknown = ("model", "backend", "mode", "reason", "tenant", "arm", "request_id", "conversation")
    assert [getattr(row, name) for name in unknown] == [None] * len(unknown)
    counts = [name for name in row.__struct_fields__ if name.endswith("_tokens")]
    assert len(counts) == 9
    assert [getattr(row, name) for name in counts] == [None] * 9
    times = ("parsed", "encoded", "leased", "sent", "headers", "first_token", "last_token")
    assert [getattr(row, name) for name in times] == [None] * len(times)
    assert (row.tokens, row.blocks, row.labels) == ([], [], {})
    assert row.error == "model_not_found"


def test_token_times_can_be_left_out(tmp_path: Path) -> None:
    """Then the first and the last are known, no other, and no event without a token."""
    kept = ledger(tmp_path / "l")
    kept._rules = rules(token_times=False)
    kept.add(record(tokens=[0.1, 0.2, 0.3], other_events=[(0.4, "done")]))
    kept.write()

    [row] = rows_of(tmp_path / "l")
    assert (row.tokens, row.other_events) == ([0.1, 0.3], [])


@given(
    gaps=st.lists(st.floats(min_value=0, max_value=500), min_size=1, max_size=300),
    start=st.floats(min_value=0, max_value=1e6),
)
def test_gaps_do_not_drift(gaps: list[float], start: float) -> None:
    """However many there are, each moment is right to the microsecond."""
    times, now = [], start
    for gap in gaps:
        now += gap
        times.append(now)
    first, last = (round((moment - start) * 1e6) / 1e6 for moment in (times[0], times[-1]))

    read = moments(first, last, gaps_us(times, start))

    assert read == pytest.approx([moment - start for moment in times], abs=1.1 * US)


def test_no_key_stands_in_the_file(tmp_path: Path) -> None:
    """Digests are of keys and a secret: neither is there."""
    key = 0x1122334455667788
    kept = ledger(tmp_path / "l")
    kept.add(record(blocks=[key], conversation=key))
    kept.write()

    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    [row] = rows_of(tmp_path / "l")
    assert row.blocks[0].hex().encode() in stored
    assert row.blocks[0] != row.conversation
    for secret in (key.to_bytes(8, "little"), key.to_bytes(8, "big"), SECRET):
        assert secret not in stored
        assert secret.hex().encode() not in stored
    assert str(key).encode() not in stored
