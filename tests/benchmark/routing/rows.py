"""From samples to rows: one for each cell and arm. What is unknown is None, never zero.

Tokens and hit rates are counts, of the engines' own reports. Times depend on the machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.benchmark.routing.bounds import Bounds
from tests.benchmark.routing.fleets import Counters
from tests.benchmark.routing.load import Sample
from tests.benchmark.routing.plan import Cell

Row = dict[str, Any]
LATE_S = 0.05
"""A dispatch that is later than this is counted as late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One arm in one cell and round."""

    samples: Sequence[Sample]
    arrivals: Sequence[float]
    counted: Sequence[Counters]
    """By the engines themselves, over the run."""
    bounds: Bounds


def row_of(cell: Cell, arm: str, outcomes: Sequence[Outcome]) -> Row:
    """Rounds are pooled: counts are summed, times are those of all requests."""
    samples = [sample for outcome in outcomes for sample in outcome.samples]
    good = [sample for sample in samples if not sample.error]
    prompt = sum(sample.prompt_tokens or 0 for sample in good)
    known = all(sample.cached_tokens is not None for sample in good)
    cached = sum(sample.cached_tokens or 0 for sample in good) if known else None
    computed = [sum(each) for each in zip(*map(_computed, outcomes), strict=True)]
    hit_rate = cached / prompt if cached is not None and prompt else None
    pooled = [each.bounds.pooled for each in outcomes]
    bound = (
        None if None in pooled else float(np.mean([each for each in pooled if each is not None]))
    )
    return {
        "setup": cell.setup,
        "engines": cell.engines,
        "capacity": cell.capacity,
        "arm": arm,
        "requests": len(samples),
        "errors": dict(Counter(sample.error for sample in samples if sample.error)),
        "offered_per_s": _per_s(len(samples), [each.arrivals[-1] for each in outcomes]),
        "achieved_per_s": _per_s(
            len(good), [max(sample.ended_at for sample in each.samples) for each in outcomes]
        ),
        "late_dispatches": sum(sample.late_s > LATE_S for sample in samples),
        "most_late_ms": max(sample.late_s for sample in samples) * 1000,
        "prompt_tokens": prompt,
        "saved_prefill_tokens": cached,
        "hit_rate": hit_rate,
        "bound_pooled": bound,
        "bound_infinite": float(np.mean([each.bounds.infinite for each in outcomes])),
        "share_of_pooled": hit_rate / bound if hit_rate is not None and bound else None,
        "computed_by_engine": computed,
        "imbalance": max(computed) * len(computed) / sum(computed) if sum(computed) else None,
        "counters_agree": None if cached is None else _agree(good, outcomes),
        "ttft_ms": _quantiles([s.ttft_s for s in good if s.ttft_s is not None]),
        "e2e_ms": _quantiles([s.ended_at - s.sent_at for s in good]),
        "modes": dict(Counter(mode for s in good if (mode := mode_of(s.decision)))),
    }


def mode_of(decision: str) -> str:
    """Out of "backend=a; reason=load; mode=events; ..."; "" if it tells none."""
    pairs = dict(part.strip().partition("=")[::2] for part in decision.split(";"))
    return pairs.get("mode", "")


def _computed(outcome: Outcome) -> list[int]:
    return [each.computed for each in outcome.counted]


def _agree(good: Sequence[Sample], outcomes: Sequence[Outcome]) -> bool:
    """Whether the engines' counters and their reports to the clients say the same."""
    counted = sum(each.cached for outcome in outcomes for each in outcome.counted)
    return counted == sum(sample.cached_tokens or 0 for sample in good)


def _per_s(count: int, spans_s: Sequence[float]) -> float | None:
    return count / sum(spans_s) if sum(spans_s) else None


def _quantiles(seconds: Sequence[float]) -> dict[str, float] | None:
    """In milliseconds, interpolated."""
    if not seconds:
        return None
    p50, p90, p99 = (float(value) * 1000 for value in np.percentile(seconds, [50, 90, 99]))
    return {"p50": p50, "p90": p90, "p99": p99}
