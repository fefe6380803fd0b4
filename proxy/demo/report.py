"""Numbers of the demo's arms: summaries, the same as JSON, and the sentence they add up to.

Unknown stays unknown: one request without the engine's `cached_tokens` makes an arm's token totals
None, never smaller.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from prefold.proxy.demo.arm import ArmRun

PERCENTILES = (50, 90, 99)
DEFINITIONS = {
    "ttft_ms": "request sent to first chunk with content, seen by the client (prefill side)",
    "itl_ms": "gaps between consecutive content chunks, pooled over requests (decode side)",
    "e2e_ms": "request sent to last chunk with content",
    "percentiles": "nearest rank, over requests without error",
    "prefill_tokens_saved": "sum of the engines' usage.prompt_tokens_details.cached_tokens",
    "prefill_tokens_computed": "prompt tokens less saved ones",
    "engine_prefill_tokens": "growth of the engine's own counter llamacpp:prompt_tokens_total",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendShare:
    name: str
    requests: int
    engine_prefill_tokens: int | None
    engine_cached_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmReport:
    """Times in milliseconds, by percentile ("p50"); None where nothing was measured."""

    policy: str
    cache: str
    slots: int
    requests: int
    errors: int
    error_kinds: dict[str, int]
    modes: dict[str, int]
    prompt_tokens: int | None
    prefill_tokens_computed: int | None
    prefill_tokens_saved: int | None
    ttft_ms: dict[str, float | None]
    itl_ms: dict[str, float | None]
    e2e_ms: dict[str, float | None]
    wall_s: float
    backends: tuple[BackendShare, ...]

    @property
    def counters_agree(self) -> bool | None:
        """Whether usage and the engines' own counters tell the same; None if either is unknown."""
        counted = total(share.engine_prefill_tokens for share in self.backends)
        if counted is None or self.prefill_tokens_computed is None:
            return None
        return counted == self.prefill_tokens_computed


def summarise(run: ArmRun) -> ArmReport:
    good = [sample for sample in run.samples if sample.error is None]
    prompt = total(sample.prompt_tokens for sample in good)
    saved = total(sample.cached_tokens for sample in good)
    served = Counter(sample.backend for sample in run.samples)
    return ArmReport(
        policy=run.arm.policy,
        cache=run.arm.cache,
        slots=run.arm.slots,
        requests=len(run.samples),
        errors=len(run.samples) - len(good),
        error_kinds=dict(Counter(sample.error for sample in run.samples if sample.error)),
        modes=dict(Counter(sample.mode or "unknown" for sample in good)),
        prompt_tokens=prompt,
        prefill_tokens_computed=None if prompt is None or saved is None else prompt - saved,
        prefill_tokens_saved=saved,
        ttft_ms=percentiles([s.ttft_s for s in good if s.ttft_s is not None]),
        itl_ms=percentiles([gap for sample in good for gap in sample.gaps_s]),
        e2e_ms=percentiles([s.e2e_s for s in good if s.e2e_s is not None]),
        wall_s=round(run.wall_s, 2),
        backends=tuple(
            BackendShare(
                name=name,
                requests=served[name],
                engine_prefill_tokens=counters.computed_tokens,
                engine_cached_tokens=counters.cached_tokens,
            )
            for name, counters in run.counters.items()
        ),
    )


def total(values: Iterable[int | None]) -> int | None:
    """The sum; None if one of them, or all for want of any, is unknown."""
    known = list(values)
    if not known or None in known:
        return None
    return sum(value for value in known if value is not None)


def percentiles(seconds: Sequence[float]) -> dict[str, float | None]:
    """{"p50": milliseconds, ...} by nearest rank: always a time that was measured."""
    ordered = sorted(seconds)
    found: dict[str, float | None] = {}
    for p in PERCENTILES:
        rank = math.ceil(p / 100 * len(ordered))
        found[f"p{p}"] = round(ordered[rank - 1] * 1000, 3) if ordered else None
    return found


def as_data(report: ArmReport) -> dict[str, object]:
    return {**asdict(report), "counters_agree": report.counters_agree}


def ratio(ours: float | None, base: float | None) -> float | None:
    return None if ours is None or not base else ours / base


def conclusion(round_robin: ArmReport, prefix: ArmReport) -> str:
    """One sentence, in the same words whichever policy did better."""
    computed = _comparison(
        prefix.prefill_tokens_computed, round_robin.prefill_tokens_computed, "prefill tokens"
    )
    ttft = _comparison(prefix.ttft_ms["p50"], round_robin.ttft_ms["p50"], "ms")
    return (
        f"With the {prefix.cache} cache, prefix routing computed {computed}; "
        f"its median TTFT was {ttft}."
    )


def _comparison(ours: float | None, base: float | None, unit: str) -> str:
    quotient = ratio(ours, base)
    if ours is None or base is None or quotient is None:
        return f"an unknown part of round robin's {unit}"
    return f"{ours:,.0f} {unit} where round robin took {base:,.0f} ({quotient:.2f}x)"
