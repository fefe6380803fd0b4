"""Everything that the dashboard and `prefold top` show, as one JSON object. No layout here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prefold.measurement.books import Books, Tally
from prefold.measurement.distribution import Distribution
from prefold.measurement.prometheus import BackendGauges
from prefold.measurement.report import report
from prefold.proxy.dashboard.series import INTERVAL_S, Series

Json = dict[str, Any]

ALL = "all"
SHARES = (*(step / 40 for step in range(1, 40)), 0.99, 0.999)
"""Of requests, at which a distribution is told."""


def figures(
    *,
    books: Books,
    series: Series,
    backends: Sequence[Mapping[str, object]],
    gauges: Sequence[BackendGauges],
    waiting: int,
    now: float,
) -> Json:
    """`backends` as the admin port's /backends has them. The report is that of /report, made from
    the same books in the same moment; distributions are of requests that ended well."""
    return {
        "now": now,
        "interval_s": INTERVAL_S,
        "waiting": waiting,
        "backends": _backends(backends, gauges),
        "report": report(books),
        "distributions": _distributions(books),
        "series": series.columns(),
    }


def _backends(
    described: Sequence[Mapping[str, object]], gauges: Sequence[BackendGauges]
) -> list[Json]:
    by_name = {one.backend: one for one in gauges}
    made = []
    for one in described:
        gauge = by_name[str(one["name"])]
        learned = {
            "believed_tokens": gauge.believed_tokens,
            "capacity_tokens": gauge.capacity_tokens,
            "prefill_tokens_per_s": gauge.prefill_tokens_per_s,
            "prediction_error": gauge.prediction_error,
        }
        made.append({**one, **learned})
    return made


def _distributions(books: Books) -> Json:
    """Of each arm where there are arms, else of all requests: [share, ms] of TTFT, ITL and E2E."""
    groups = books.grouped(lambda kind: (kind.arm,) if kind.arm else None)
    if not groups:
        groups = books.grouped(lambda kind: (ALL,))
    return {name: _times(tally) for (name,), tally in groups.items()}


def _times(tally: Tally) -> Json:
    times = {"ttft_ms": tally.ttft, "itl_ms": tally.itl, "e2e_ms": tally.e2e}
    return {name: _curve(distribution) for name, distribution in times.items()}


def _curve(distribution: Distribution) -> Json:
    sketch = distribution.sketch
    values = sketch.quantiles(SHARES)
    return {
        "count": sketch.count,
        "points": [[q, round(value * 1000, 3)] for q, value in zip(SHARES, values, strict=False)],
    }
