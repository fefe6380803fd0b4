"""Which trace a bucket names."""

from __future__ import annotations

from prefold.measurement.books import SECONDS, Books
from prefold.measurement.exemplars import Exemplar, Exemplars
from prefold.measurement.prometheus import Metrics
from prefold.measurement.record import RequestOutcome, RequestRecord


def answered(
    trace: str, seconds: float, outcome: RequestOutcome = RequestOutcome.OK
) -> RequestRecord:
    return RequestRecord(
        endpoint="/v1/chat/completions",
        received=0.0,
        trace_id=trace,
        model="m",
        backend="b0",
        outcome=outcome,
        tokens=[seconds] if seconds else [],
        end=1000.0,
    )


def test_the_latest_of_each_bucket_is_named() -> None:
    """Of answers with a first token, by model and backend."""
    made = Exemplars((0.25, 0.5))
    for record in (
        answered("a", 0.125),
        answered("b", 0.25),
        answered("c", 64.0),
        answered("d", 0.375, RequestOutcome.CUT_OFF),
        answered("e", 0.0),
    ):
        made.add(record)

    assert made.of("m", "b0") == {0: Exemplar("b", 0.25), 2: Exemplar("c", 64.0)}
    assert made.of("m", "b1") == {}


def test_a_bucket_that_names_a_trace_holds_its_time() -> None:
    """Bucket by bucket, as OpenMetrics wants it; without traces the text is as it was."""
    books = Books()
    for number, bound in enumerate(SECONDS):
        books.add(answered(f"{number:032x}", bound))
    books.add(answered("", 0.25))
    text = Metrics(books, lambda: []).exposition(openmetrics=True).decode()
    lines = [line for line in text.splitlines() if line.startswith("prefold_ttft_seconds_bucket")]
    named = [line for line in lines if " # " in line]

    assert len(named) == len(SECONDS) == len(lines) - 1
    for number, (line, bound) in enumerate(zip(named, SECONDS, strict=True)):
        assert f'le="{bound}"' in line
        assert f'trace_id="{number:032x}"' in line
    assert b"trace_id" not in Metrics(books, lambda: []).exposition()
