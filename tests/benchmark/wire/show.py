"""The rows as tables: a table for each figure, a column for each peer, ratios to prefold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from tests.benchmark.wire.peers import DIRECT
from tests.benchmark.wire.plan import Plan
from tests.benchmark.wire.rows import Row

Figure = Callable[[Row], float | None]
BASE = "prefold"


def tables(found: Sequence[Row], peers: Sequence[str], plan: Plan) -> list[Table]:
    short, long = plan.chunks
    pace = f"{plan.paced_streams} streams at once, chunks {plan.pace_ms:g} ms apart"
    stub = f"{plan.rate:g} requests/s, stub TTFT {plan.stub_ttft_ms:g} ms"
    figures: list[tuple[str, str, Figure]] = [
        ("CPU us per request, not streamed", "full", _plain("cpu_us_per_request")),
        (f"CPU us per chunk, {pace}", "stream", _plain("cpu_us_per_chunk")),
        (f"CPU us per request, {short} chunks, {pace}", "stream", _kind("paced_short")),
        (f"CPU us per request, {long} chunks, {pace}", "stream", _kind("paced_long")),
        (f"CPU us per request, {short} chunks in a burst", "stream", _kind("burst_short")),
        (f"CPU us per request, {long} chunks in a burst", "stream", _kind("burst_long")),
        (f"TTFT ms as the client sees it, p50, {stub}", "stream", _ttft("p50")),
        (f"added TTFT ms, p50, {stub}", "stream", _added("p50")),
        (f"added TTFT ms, p99, {stub}", "stream", _added("p99")),
        ("added ms to a whole answer, p50, stub answers at once", "full", _added("p50")),
        ("added ms to a whole answer, p99, stub answers at once", "full", _added("p99")),
        ("resident MB after the case", "full", _plain("rss_mb")),
    ]
    return [_table(title, mode, figure, found, peers) for title, mode, figure in figures]


def errors(found: Sequence[Row]) -> list[str]:
    """One line for each case in which a peer has no figures."""
    lines = [
        f"{row['peer']}, {row['body_kib']} KiB {row['prompt']}: {row['error']}"
        for row in found
        if row["error"]
    ]
    return list(dict.fromkeys(lines))


def print_tables(console: Console, found: Sequence[Row], peers: Sequence[str], plan: Plan) -> None:
    for table in tables(found, peers, plan):
        console.print(table)
    for line in errors(found):
        console.print(f"no figures: {line}")


def _table(
    title: str, mode: str, figure: Figure, found: Sequence[Row], peers: Sequence[str]
) -> Table:
    table = Table("request", title=title, title_justify="left", box=None)
    for peer in peers:
        table.add_column(peer, justify="right")
    cases: dict[tuple[int, str], dict[str, float | None]] = {}
    for row in found:
        if row["mode"] == mode:
            cases.setdefault((row["body_kib"], row["prompt"]), {})[row["peer"]] = figure(row)
    for (size, prompt), values in cases.items():
        base = values.get(BASE)
        cells = (_cell(values.get(peer), base, peer) for peer in peers)
        table.add_row(f"{size} KiB {prompt}", *cells)
    return table


def _cell(value: float | None, base: float | None, peer: str) -> str:
    if value is None:
        return "-"
    shown = f"{value:.2f}" if abs(value) < 10 else f"{value:,.0f}"
    if peer == BASE or base is None or base <= 0 or value <= 0:
        return shown
    return f"{shown} ({value / base:.2g}x)"


def _plain(name: str) -> Figure:
    return lambda row: row[name]


def _kind(name: str) -> Figure:
    return lambda row: row["cpu_us_per_request_by_kind"][name]


def _ttft(quantile: str) -> Figure:
    return lambda row: row["ttft_ms"][quantile] if row["ttft_ms"] else None


def _added(quantile: str) -> Figure:
    """Nothing for `direct`, which is what the others are compared with."""

    def figure(row: Row) -> float | None:
        added = row["added_ttft_ms"]
        return added[quantile] if added and row["peer"] != DIRECT else None

    return figure
