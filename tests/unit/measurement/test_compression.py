"""What compression did, summed from records."""

from __future__ import annotations

import pytest

from prefold.measurement.books import Books
from prefold.measurement.compression import CompressorState
from prefold.measurement.prometheus import Metrics
from prefold.measurement.record import RequestOutcome, RequestRecord
from prefold.measurement.report import report


def record(**members: object) -> RequestRecord:
    made = RequestRecord(endpoint="/e", received=10.0, model="m", outcome=RequestOutcome.OK)
    made.parsed, made.encoded, made.compressed, made.matched, made.chosen = 10.1, 10.2, 10.7, 11, 11
    for name, value in members.items():
        setattr(made, name, value)
    return made


def sample(books: Books, line: str) -> bool:
    state = CompressorState(
        hits=1,
        misses=2,
        shared=3,
        cache_bytes=4,
        workers=5,
        failures=6,
        faults={("text", "RuntimeError"): 9},
        waiting_chars=7,
        chars_per_s=None,
        busy_s=8.5,
    )
    exposition = Metrics(books, lambda: [], compressor=lambda: state).exposition().decode()
    return line in exposition.splitlines()


def test_gains_are_predicted_and_measured_against_the_original() -> None:
    """Predicted: 14 - 12; measured: 14 - 12.5, and so the prediction was off by half a second."""
    books = Books()
    compressed = record(
        compression="compressed",
        compression_reason="pays",
        removed_tokens=300,
        predicted_token=12.0,
        fallback_token=14.0,
        tokens=[12.5, 12.6],
    )
    books.add(compressed)
    books.add(record(compression="original", compression_reason="costs", predicted_token=12.0))
    books.add(record())
    tally = books.compression
    assert tally.requests == {("m", "compressed", "pays"): 1, ("m", "original", "costs"): 1}
    assert tally.gains["m"].predicted == pytest.approx(2.0)
    assert tally.gains["m"].measured == pytest.approx(1.5)
    assert tally.errors["m", "compressed"].sum == pytest.approx(0.5)
    assert tally.seconds["m", "compressed"].sum == pytest.approx(0.5)
    assert report(books)["compression"]["m"] == {
        "requests": {"compressed: pays": 1, "original: costs": 1},
        "removed_tokens": 300,
        "shadow_tokens": 0,
        "predicted_gain_s": 2.0,
        "measured_gain_s": 1.5,
    }


def test_its_time_is_no_time_of_matching() -> None:
    """But part of what the proxy adds."""
    books = Books()
    books.add(record(compression="compressed", compression_reason="on"))
    [(_, tally)] = list(books)
    assert [round(stage.sum, 3) for stage in tally.stages] == [0.1, 0.1, 0.3, 0.0]
    assert tally.overhead.quantile(0.5) == pytest.approx(1.0, rel=0.02)
    assert dict(record().stages_s())["compress"] == pytest.approx(0.5)


def test_what_is_unknown_has_no_sample() -> None:
    """The state of the compressor is shown where there is one."""
    books = Books()
    assert sample(books, 'prefold_compression_segments_total{result="shared"} 3.0')
    assert sample(books, "prefold_compression_worker_failures_total 6.0")
    assert sample(books, 'prefold_compression_faults_total{kind="RuntimeError",of="text"} 9.0')
    assert sample(books, "prefold_compression_compressor_seconds_total 8.5")
    assert not sample(books, "prefold_compression_chars_per_second 0.0")
    without = Metrics(books, lambda: []).exposition().decode().splitlines()
    assert not [line for line in without if line.startswith("prefold_compression_workers ")]
