"""Ledger rows with known truths: what prefill costs, what waits, and who disturbs whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefold.measurement.diagnosis.answer import Answer, Figure
from prefold.measurement.ledger.reader import LedgerRow
from prefold.measurement.ledger.samples import EngineSample

START = 1_800_000_000.0


def row(
    at: float = 0.0,
    *,
    talk: int | None = None,
    backend: str | None = "b0",
    labels: dict[str, str] | None = None,
    prompt: int | None = 1000,
    cached: int | None = 0,
    output: int = 10,
    queue: float = 0.0,
    proxy: float = 0.001,
    network: float = 0.002,
    server: float = 0.1,
    gap: float = 0.01,
    gaps: Sequence[float] | None = None,
    **members: Any,
) -> LedgerRow:
    """Received `at` seconds after START. `proxy` seconds are our own work, `queue` our queue,
    `server` from sent to the first token, and `gap` or `gaps` between tokens."""
    sent = proxy + queue
    tokens = [sent + server]
    for one in [gap] * (output - 1) if gaps is None else gaps:
        tokens.append(tokens[-1] + one)
    given: dict[str, Any] = dict.fromkeys(LedgerRow.__struct_fields__)
    given |= {
        "id": round((START + at + tokens[-1]) * 1e6),
        "received": START + at,
        "endpoint": "/v1/chat/completions",
        "backend": backend,
        "labels": labels or {},
        "outcome": "ok",
        "status": 200,
        "attempts": 1,
        "streamed": True,
        "original_tokens": prompt,
        "prompt_tokens": prompt,
        "reported_tokens": cached,
        "output_tokens": output,
        "parsed": proxy / 2,
        "encoded": proxy,
        "matched": sent,
        "leased": sent,
        "sent": sent,
        "headers": sent + network,
        "first_event": tokens[0],
        "first_token": tokens[0],
        "last_token": tokens[-1],
        "end": tokens[-1],
        "tokens": tokens,
        "token_kinds": [],
        "other_events": [],
        "blocks": [],
        "conversation": None if talk is None else talk.to_bytes(8, "little"),
        "slice_start": None,
        "round_start": None,
    }
    return LedgerRow(**{**given, **members})


def looked(at: float, **members: Any) -> EngineSample:
    given: dict[str, Any] = {
        "at": START + at, "backend": "b0", "running": 8, "waiting": 0, "kv_usage": 0.5,
        "preemptions": 0, "in_flight": 8,
    }  # fmt: skip
    return EngineSample(**{**given, **members})


def figure(answer: Answer, name: str) -> Figure:
    [found] = [one for one in answer.figures if one.name == name]
    return found
