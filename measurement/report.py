"""Running totals of finished requests, as the /report page shows them.

Savings are claimed from what engines reported; requests whose engine reported nothing are counted
as unknown, beside the claim and not in it.
"""

from __future__ import annotations

from typing import Any

from prefold.measurement.record import RequestOutcome, RequestRecord
from prefold.measurement.sketch import Sketch

DEFINITIONS = {
    "ttft_ms": "received by prefold to first content, reasoning or tool-call delta (prefill)",
    "itl_ms": "gaps between consecutive such deltas, pooled over requests (decode)",
    "e2e_ms": "received to last such delta; to the end of the body when not streamed",
    "prefill_tokens_saved": "cached prompt tokens as reported by the engines",
    "expected_cached_tokens": "the same as predicted by the index for the chosen backend",
    "available_cached_tokens": "the same as predicted for the best backend of the fleet",
    "quantiles": "DDSketch, relative error at most 1 %",
}


class Totals:
    """Sums over requests of one group. Mutable."""

    def __init__(self) -> None:
        self.requests = 0
        self.outcomes: dict[str, int] = {}
        self.reasons: dict[str, int] = {}
        self.prompt_tokens = 0
        self.saved_tokens = 0
        self.reported_requests = 0
        self.unreported_requests = 0
        self.expected_tokens = 0
        self.available_tokens = 0
        self.prediction_error_tokens = 0
        self.output_tokens = 0
        self.ttft, self.itl, self.e2e, self.overhead = Sketch(), Sketch(), Sketch(), Sketch()

    def add(self, record: RequestRecord) -> None:
        self.requests += 1
        self.outcomes[record.outcome] = self.outcomes.get(record.outcome, 0) + 1
        if record.reason:
            self.reasons[record.reason] = self.reasons.get(record.reason, 0) + 1
        if record.chosen is not None:
            self.overhead.add(record.chosen - record.received)
        if record.outcome is not RequestOutcome.OK:
            return
        self._add_tokens(record)
        self.itl.add(*record.itl_s)
        if record.ttft_s is not None:
            self.ttft.add(record.ttft_s)
        if record.e2e_s is not None:
            self.e2e.add(record.e2e_s)

    def _add_tokens(self, record: RequestRecord) -> None:
        self.output_tokens += record.output_tokens or 0
        self.available_tokens += record.available_tokens or 0
        self.expected_tokens += record.expected_tokens or 0
        if record.prompt_tokens is None or record.reported_tokens is None:
            self.unreported_requests += 1
            return
        self.reported_requests += 1
        self.prompt_tokens += record.prompt_tokens
        self.saved_tokens += record.reported_tokens
        if record.expected_tokens is not None:
            self.prediction_error_tokens += abs(record.expected_tokens - record.reported_tokens)

    def as_dict(self) -> dict[str, Any]:
        reported = self.reported_requests > 0
        return {
            "requests": self.requests,
            "outcomes": self.outcomes,
            "reasons": self.reasons,
            "requests_with_reported_cache": self.reported_requests,
            "requests_without_reported_cache": self.unreported_requests,
            "prompt_tokens": self.prompt_tokens if reported else None,
            "prefill_tokens_saved": self.saved_tokens if reported else None,
            "prefill_tokens_computed": self.prompt_tokens - self.saved_tokens if reported else None,
            "expected_cached_tokens": self.expected_tokens,
            "available_cached_tokens": self.available_tokens,
            "prediction_error_tokens": self.prediction_error_tokens if reported else None,
            "output_tokens": self.output_tokens,
            "ttft_ms": _quantiles(self.ttft),
            "itl_ms": _quantiles(self.itl),
            "e2e_ms": _quantiles(self.e2e),
            "proxy_overhead_ms": _quantiles(self.overhead),
        }


class Report:
    """Totals of everything since start, and for each backend. Mutable."""

    def __init__(self) -> None:
        self._all = Totals()
        self._backends: dict[str, Totals] = {}

    def add(self, record: RequestRecord) -> None:
        self._all.add(record)
        if record.backend:
            self._backends.setdefault(record.backend, Totals()).add(record)

    def as_dict(self) -> dict[str, Any]:
        return {
            "total": self._all.as_dict(),
            "backends": {name: totals.as_dict() for name, totals in self._backends.items()},
            "definitions": DEFINITIONS,
        }


def _quantiles(sketch: Sketch) -> dict[str, float | int | None]:
    values: dict[str, float | int | None] = {"count": sketch.count}
    for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        value = sketch.quantile(q)
        values[name] = None if value is None else round(value * 1000, 3)
    return values
