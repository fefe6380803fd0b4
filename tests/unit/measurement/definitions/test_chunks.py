from __future__ import annotations

from prefold.measurement.definitions.timeline import Kind, chunks_of


def test_token_events_and_others_are_merged_in_order_of_time() -> None:
    """Each token event has the kind that was named last before it."""
    chunks = chunks_of(
        [0.2, 0.3, 0.5, 0.6],
        [(0, "reasoning"), (2, "content")],
        [(0.1, "role"), (0.4, "other"), (0.7, "finish"), (0.9, "done")],
        start=10.0,
    )

    assert [chunk.kind for chunk in chunks] == [
        Kind.ROLE, Kind.REASONING, Kind.REASONING, Kind.CONTENT, Kind.CONTENT, Kind.FINISH,
        Kind.DONE,
    ]  # fmt: skip
    assert [round(chunk.t - 10, 6) for chunk in chunks] == [0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.9]


def test_without_kinds_tokens_are_content() -> None:
    """As a ledger that keeps none has them."""
    assert [chunk.kind for chunk in chunks_of([1.0, 2.0], [], [])] == [Kind.CONTENT] * 2
