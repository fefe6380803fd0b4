"""The totals of finished requests as the /report page shows them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from prefold.measurement.books import Books, Compared, Kind, Tally
from prefold.measurement.sketch import Sketch

DEFINITIONS = {
    "ttft_ms": "received by prefold to first content, reasoning or tool-call delta (prefill)",
    "itl_ms": "gaps between consecutive such deltas, pooled over requests (decode)",
    "e2e_ms": "received to last such delta; to the end of the body when not streamed",
    "prefill_tokens_saved": "cached prompt tokens as reported by the engines",
    "expected_cached_tokens": "the same as predicted by the index for the chosen backend",
    "available_cached_tokens": "the same as predicted for the best backend of the fleet",
    "hits": "available, expected and reported cached tokens of requests for which all are known",
    "prediction": "by mode; error: expected minus reported cached tokens, absolute and signed",
    "index_corrections": "tokens that reports showed not to be cached, or to be cached after all",
    "documents_moved": "documents of RAG prompts sent in another place than they came in",
    "divergence": "where prompts part from recent ones, of a sample; what that lost, in tokens",
    "compression": "requests by form sent, and why; gains: the TTFT predicted for the prompt as it"
    " came, less that of the form sent, predicted and measured",
    "quantiles": "DDSketch, relative error at most 1 %",
}


def report(books: Books) -> dict[str, Any]:
    """Everything since start, and for each backend."""
    kinds = list(books)
    names = dict.fromkeys(kind.backend for kind, _ in kinds if kind.backend)
    return {
        "total": _totals(kinds),
        "backends": {
            name: _totals([(kind, tally) for kind, tally in kinds if kind.backend == name])
            for name in names
        },
        "arms": {
            name: _totals([(kind, tally) for kind, tally in kinds if kind.arm == name])
            for name in dict.fromkeys(kind.arm for kind, _ in kinds if kind.arm)
        },
        "divergence": books.divergences.report(),
        "compression": books.compression.report(),
        "definitions": DEFINITIONS,
    }


def _totals(kinds: list[tuple[Kind, Tally]]) -> dict[str, Any]:
    total, outcomes, reasons = Tally(), Counter[str](), Counter[str]()
    for kind, tally in kinds:
        total.merge(tally)
        outcomes[kind.outcome] += tally.requests
        if kind.reason:
            reasons[kind.reason] += tally.requests
    reported = total.reported_requests > 0
    computed = total.prompt_tokens - total.saved_tokens
    return {
        "requests": total.requests,
        "outcomes": dict(outcomes),
        "reasons": dict(reasons),
        "requests_with_reported_cache": total.reported_requests,
        "requests_without_reported_cache": total.unreported_requests,
        "prompt_tokens": total.prompt_tokens if reported else None,
        "prefill_tokens_saved": total.saved_tokens if reported else None,
        "prefill_tokens_computed": computed if reported else None,
        "expected_cached_tokens": total.expected_tokens,
        "available_cached_tokens": total.available_tokens,
        "hits": _hits(total.compared),
        "prediction_error_tokens": total.prediction_error_tokens if reported else None,
        "prediction": _prediction(kinds),
        "index_corrections": {
            "lost_tokens": total.lost_tokens,
            "found_tokens": total.found_tokens,
            "caches_emptied": total.emptied,
        },
        "output_tokens": total.output_tokens,
        "documents_moved": total.documents_moved,
        "ttft_ms": _quantiles(total.ttft.sketch),
        "itl_ms": _quantiles(total.itl.sketch),
        "e2e_ms": _quantiles(total.e2e.sketch),
        "proxy_overhead_ms": _quantiles(total.overhead),
    }


def _hits(compared: Compared) -> dict[str, int] | None:
    if not compared.requests:
        return None
    return {name: getattr(compared, name) for name in Compared.__slots__}


def _prediction(kinds: list[tuple[Kind, Tally]]) -> dict[str, dict[str, float | int]]:
    """By mode, of the requests that were reported on."""
    modes: dict[str, Tally] = {}
    for kind, tally in kinds:
        if kind.mode and tally.reported_requests:
            modes.setdefault(kind.mode, Tally()).merge(tally)
    return {
        mode: {
            "requests": total.reported_requests,
            "reported_tokens": total.saved_tokens,
            "error_tokens": total.prediction_error_tokens,
            "signed_error_tokens": total.overexpected_tokens - total.underexpected_tokens,
        }
        for mode, total in modes.items()
    }


def _quantiles(sketch: Sketch) -> dict[str, float | int | None]:
    values: dict[str, float | int | None] = {"count": sketch.count}
    for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        value = sketch.quantile(q)
        values[name] = None if value is None else round(value * 1000, 3)
    return values
