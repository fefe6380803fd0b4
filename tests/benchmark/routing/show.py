"""The rows as tables, for a terminal and as Markdown: one for each cell, a line for each arm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.benchmark.routing.rows import Row

LEGEND = (
    "Counts, of the engines' own reports: saved tokens, hit rate, of bound, imbalance. Times, which"
    " depend on the machine: TTFT, E2E, achieved. Of bound: hit rate over that of one LRU cache as"
    " large as all engines' together. Imbalance: computed tokens of the engine with the most, over"
    " the mean. Late: requests dispatched more than 50 ms after their time."
)
COLUMNS: Sequence[tuple[str, Callable[[Row], str]]] = (
    ("arm", lambda row: str(row["arm"])),
    ("saved tokens", lambda row: _number(row["saved_prefill_tokens"], "{:,}")),
    ("hit rate", lambda row: _number(row["hit_rate"], "{:.1%}")),
    ("of bound", lambda row: _number(row["share_of_pooled"], "{:.1%}")),
    ("imbalance", lambda row: _number(row["imbalance"], "{:.2f}")),
    ("TTFT ms p50", lambda row: _quantile(row["ttft_ms"], "p50")),
    ("p90", lambda row: _quantile(row["ttft_ms"], "p90")),
    ("p99", lambda row: _quantile(row["ttft_ms"], "p99")),
    ("E2E ms p50", lambda row: _quantile(row["e2e_ms"], "p50")),
    ("p90", lambda row: _quantile(row["e2e_ms"], "p90")),
    ("errors", lambda row: str(sum(row["errors"].values()))),
    ("achieved/s", lambda row: _number(row["achieved_per_s"], "{:.2f}")),
    ("late", lambda row: str(row["late_dispatches"])),
)


def print_tables(console: Console, report: dict[str, Any]) -> None:
    for title, rows in _cells(report):
        table = Table(title=title, title_justify="left", box=None)
        for heading, _ in COLUMNS:
            table.add_column(heading, justify="left" if heading == "arm" else "right")
        for row in rows:
            table.add_row(*(figure(row) for _, figure in COLUMNS))
        console.print(table)
        console.print(f"[dim]{report['cells'][rows[0]['cell']]['workload_is']}")
    console.print(f"[dim]{LEGEND}")
    for line in complaints(report):
        console.print(line, style="bold red")


def as_markdown(report: dict[str, Any]) -> str:
    lines = []
    for title, rows in _cells(report):
        about = report["cells"][rows[0]["cell"]]["workload_is"]
        lines += [f"{title} ({about}):", ""]
        lines.append("| " + " | ".join(heading for heading, _ in COLUMNS) + " |")
        lines.append("| " + " | ".join("---" for _ in COLUMNS) + " |")
        for row in rows:
            lines.append("| " + " | ".join(figure(row) for _, figure in COLUMNS) + " |")
        lines.append("")
    return "\n".join([*lines, LEGEND, *complaints(report), ""])


def complaints(report: dict[str, Any]) -> list[str]:
    """What a reader must know before believing a row; usually nothing."""
    found = [f"{name} was not run: {why}" for name, why in report["not_run"].items()]
    for row in report["rows"]:
        where = f"{row['cell']}, {row['arm']}"
        if row["errors"]:
            kinds = ", ".join(f"{count} x {kind}" for kind, count in row["errors"].items())
            found.append(f"{where}: requests failed ({kinds})")
        if row["saved_prefill_tokens"] is None:
            found.append(f"{where}: an engine did not report its cached tokens")
        if row["counters_agree"] is False:
            found.append(f"{where}: the engines' counters say otherwise than their reports")
        if len(row["modes"]) > 1:
            found.append(f"{where}: decisions in several modes ({row['modes']})")
    return found


def _cells(report: dict[str, Any]) -> list[tuple[str, list[Row]]]:
    """A title, and the rows of the cell."""
    found: dict[str, list[Row]] = {}
    for row in report["rows"]:
        title = f"{row['cell']}, {_number(row['offered_per_s'], '{:.2f}')} requests/s offered"
        title += f", bound {_number(row['bound_pooled'], '{:.1%}')}"
        title += f" (unlimited {_number(row['bound_infinite'], '{:.1%}')})"
        title += f", {row['prompt_tokens']:,} prompt tokens in {row['requests']} requests"
        found.setdefault(row["cell"], []).append({**row, "title": title})
    return [(rows[0]["title"], rows) for rows in found.values()]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _quantile(quantiles: dict[str, float] | None, name: str) -> str:
    return "-" if quantiles is None else f"{quantiles[name]:,.0f}"
