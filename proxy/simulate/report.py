"""Runs as a table for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from prefold.proxy.simulate.sweep import Outcome, Run
from prefold.proxy.simulate.trace import Trace


def as_json(trace: Trace, done: Sequence[Run]) -> dict[str, Any]:
    """One run: its own object. Several: `runs`, a list of such objects."""
    listed = [_run(trace, run) for run in done]
    return listed[0] if len(listed) == 1 else {"runs": listed}


def _run(trace: Trace, run: Run) -> dict[str, Any]:
    engine = run.fleet.engine
    return {
        "trace": trace.name,
        "requests": len(trace.requests),
        "prompt_tokens": trace.prompt_tokens,
        "duration_s": trace.duration_s,
        "backends": run.fleet.backends,
        **asdict(engine),
        "load": run.load,
        "bound_pooled": run.bounds.pooled,
        "bound_infinite": run.bounds.infinite,
        "policies": {name: _policy(run, outcome) for name, outcome in run.outcomes.items()},
    }


def _policy(run: Run, outcome: Outcome) -> dict[str, Any]:
    return {
        **asdict(outcome.figures),
        "bound_pooled": run.bounds.pooled,
        "bound_infinite": run.bounds.infinite,
        "share_of_pooled": share(outcome.figures.hit_rate, run.bounds.pooled),
        "cpu_s": outcome.cpu_s,
    }


def share(hit_rate: float, bound: float) -> float | None:
    """None where nothing can be hit."""
    return hit_rate / bound if bound else None


def as_table(trace: Trace, run: Run) -> Table:
    engine = run.fleet.engine
    table = Table(
        box=SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
        title_justify="left",
        caption_justify="left",
        title=(
            f"\n{trace.name}: {len(trace.requests):,} requests, {trace.prompt_tokens:,} tokens"
            f"\n{run.fleet.backends} backends with {engine.cache_tokens:,} tokens of cache and"
            f" {engine.prefill_tokens_per_s:,.0f} tokens/s of prefill each\nload {run.load:.2f}"
        ),
        caption=(
            f"hits: prompt tokens reused; one LRU cache of all the room: {run.bounds.pooled:.1%},"
            f" an infinite one: {run.bounds.infinite:.1%}"
            "\npooled: hits as a share of those of one LRU cache of the fleet's size"
            "\nuneven: imbalance, most computed tokens / mean; p50 to p99: TTFT, simulated seconds"
            "\nbusy: the busiest backend's seconds of prefill for each second of arrivals"
        ),
    )
    table.add_column("policy", no_wrap=True)
    for heading in ("hits", "pooled", "uneven", "p50", "p90", "p99", "busy"):
        table.add_column(heading, justify="right")
    for name, outcome in run.outcomes.items():
        table.add_row(name, *_cells(run, outcome), style="bold" if name == "prefold" else None)
    return table


def _cells(run: Run, outcome: Outcome) -> list[str]:
    figures = outcome.figures
    of_pooled = share(figures.hit_rate, run.bounds.pooled)
    ttft = figures.ttft_ms
    return [
        f"{figures.hit_rate:.1%}",
        "-" if of_pooled is None else f"{of_pooled:.1%}",
        f"{figures.imbalance:.2f}",
        *(_seconds(value) for value in (ttft.p50, ttft.p90, ttft.p99)),
        f"{figures.utilisation:.0%}",
    ]


def _seconds(milliseconds: float) -> str:
    seconds = milliseconds / 1000
    return f"{seconds:.2f}" if seconds < 100 else f"{seconds:,.0f}"
