"""From samples to rows: one for each peer, body size, prompt and mode.

CPU figures are medians over the rounds. TTFTs of all rounds are pooled, and the added one is the
peer's quantile less the same quantile of `direct`. What was not measured is None.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.benchmark.wire.bench import Results, Sample
from tests.benchmark.wire.peers import DIRECT
from tests.benchmark.wire.phases import Phase
from tests.benchmark.wire.plan import Case, Plan

Row = dict[str, Any]
CPU_PHASES = {
    "burst_short": Phase.BURST_SHORT,
    "burst_long": Phase.BURST_LONG,
    "paced_short": Phase.PACED_SHORT,
    "paced_long": Phase.PACED_LONG,
}


def rows(results: Results, peers: Sequence[str], plan: Plan) -> list[Row]:
    return [
        row(results, case, peer, plan)
        for case in plan.cases
        for row in (_stream_row, _full_row)
        for peer in peers
    ]


def _stream_row(results: Results, case: Case, peer: str, plan: Plan) -> Row:
    """Its cost of a request is that of a paced stream of the shorter length."""

    def samples(phase: Phase) -> list[Sample]:
        return results.samples.get((case, peer, phase), [])

    costs = {name: _cpu(samples(phase)) for name, phase in CPU_PHASES.items()}
    short, long = plan.chunks
    per_chunk = [
        (many.cpu_us - few.cpu_us) / (long - short)
        for few, many in zip(samples(Phase.PACED_SHORT), samples(Phase.PACED_LONG), strict=False)
        if few.cpu_us is not None and many.cpu_us is not None
    ]
    return {
        **_common(results, case, peer, "stream", Phase.TTFT_STREAM),
        "chunks": short,
        "cpu_us_per_request": costs["paced_short"],
        "cpu_us_per_chunk": statistics.median(per_chunk) if per_chunk else None,
        "cpu_us_per_request_by_kind": costs,
    }


def _full_row(results: Results, case: Case, peer: str, plan: Plan) -> Row:
    """Its TTFT is the time to the whole answer, which the stub gives at once."""
    samples = results.samples.get((case, peer, Phase.WHOLE), [])
    return {
        **_common(results, case, peer, "full", Phase.TTFT_WHOLE),
        "chunks": 0,
        "cpu_us_per_request": _cpu(samples),
        "cpu_us_per_chunk": None,
        "stub_cpu_us_per_request": _median([sample.stub_cpu_us for sample in samples]),
        "load_cpu_us_per_request": _median([sample.load_cpu_us for sample in samples]),
        "renderings_per_request": _median([sample.renderings for sample in samples]),
    }


def _common(results: Results, case: Case, peer: str, mode: str, phase: Phase) -> Row:
    ours = _quantiles(results.samples.get((case, peer, phase), []))
    direct = _quantiles(results.samples.get((case, DIRECT, phase), []))
    seen = [
        sample.rss_mb
        for (where, name, _), found in results.samples.items()
        if (where, name) == (case, peer)
        for sample in found
        if sample.rss_mb is not None
    ]
    added = {name: ours[name] - direct[name] for name in ours} if ours and direct else None
    return {
        "peer": peer,
        "body_kib": case.body_kib,
        "prompt": case.prompt,
        "mode": mode,
        "added_ttft_ms": added,
        "ttft_ms": ours,
        "ttft_requests": sum(
            len(sample.first_ms) for sample in results.samples.get((case, peer, phase), [])
        ),
        "rss_mb": seen[-1] if seen else None,
        "error": results.errors.get((case, peer)),
    }


def _cpu(samples: Sequence[Sample]) -> float | None:
    return _median([sample.cpu_us for sample in samples if sample.cpu_us is not None])


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _quantiles(samples: Sequence[Sample]) -> dict[str, float] | None:
    pooled = [value for sample in samples for value in sample.first_ms]
    if not pooled:
        return None
    p50, p99 = np.percentile(pooled, [50, 99])
    return {"p50": float(p50), "p99": float(p99)}
