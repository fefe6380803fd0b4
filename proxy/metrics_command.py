"""`prefold metrics`: raw timelines in, every tool's figures out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from prefold.measurement.definitions.profiles import PROFILES
from prefold.measurement.definitions.steady import Stability, cut, stability
from prefold.measurement.definitions.summary import Summary, as_json, summarise
from prefold.measurement.definitions.timeline import Timeline, TimelineError, read_timelines

SHOWN = ("p50", "p90", "p99", "p99.9")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--profile",
    "names",
    default="prefold",
    show_default=True,
    help=f"all, or a comma list of {', '.join(PROFILES)}.",
)
@click.option("--warmup", "warmup_s", default=0.0, type=click.FloatRange(0), show_default=True,
              help="Seconds at the run's beginning whose requests do not count.")  # fmt: skip
@click.option("--cooldown", "cooldown_s", default=0.0, type=click.FloatRange(0), show_default=True,
              help="Seconds at its end.")  # fmt: skip
@click.option("--window", "window_s", default=5.0, type=click.FloatRange(0, min_open=True),
              show_default=True, help="Seconds of a window, to tell a steady run.")  # fmt: skip
@click.option("--json", "as_json_", is_flag=True, help="For programs: all percentiles.")
def metrics(
    file: Path, names: str, warmup_s: float, cooldown_s: float, window_s: float, as_json_: bool
) -> None:
    """What each benchmark tool would have said of the same requests.

    FILE holds one request a line: `sent`, `chunks` [{`t`, `kind`, `tokens`, `text`}], `usage`; in
    seconds. docs/metrics.md has the format, and where the tools differ.
    """
    wanted = list(PROFILES) if names == "all" else names.split(",")
    unknown = [name for name in wanted if name not in PROFILES]
    if unknown:
        raise click.UsageError(
            f"unknown profile {', '.join(unknown)}; known: {', '.join(PROFILES)}"
        )
    try:
        timelines = list(read_timelines(file))
    except TimelineError as error:
        raise click.ClickException(str(error)) from None
    if not timelines:
        raise click.ClickException(
            f"{file}: no requests; `prefold replay --timelines FILE` writes some"
        )
    counted = cut(timelines, warmup_s=warmup_s, cooldown_s=cooldown_s)
    summaries = {name: summarise(PROFILES[name], counted) for name in wanted}
    steady = stability(counted, window_s)
    if as_json_:
        click.echo(json.dumps(_json(timelines, counted, summaries, steady), indent=2))
        return
    console = Console()
    for summary in summaries.values():
        console.print(_table(summary))
    console.print(_closing(timelines, counted, steady), highlight=False)


def _json(
    timelines: list[Timeline],
    counted: list[Timeline],
    summaries: dict[str, Summary],
    steady: Stability,
) -> dict[str, Any]:
    return {
        "requests": len(timelines),
        "counted": len(counted),
        "stability": {name: getattr(steady, name) for name in steady.__struct_fields__},
        "profiles": {name: as_json(summary) for name, summary in summaries.items()},
    }


def _table(summary: Summary) -> Table:
    window = summary.windows[summary.window]
    hit = "not reported" if summary.cache_hit_rate is None else f"{summary.cache_hit_rate:.1%}"
    table = Table(
        box=SIMPLE_HEAD,
        title=f"{summary.profile}  ({summary.source})",
        caption="\n".join(
            (
                f"{summary.requests} requests, {summary.failed} failed; {_said(window.output_tps)}"
                f" output tokens/s, {_said(window.input_tps)} input tokens/s,"
                f" {_said(window.requests_per_s)} requests/s over {window.seconds:.3f} s"
                f" ({summary.window}); cache hit rate {hit}",
                *summary.remarks,
                *(f"{name}: {metric.definition}" for name, metric in summary.metrics.items()),
            )
        ),
        title_justify="left",
        caption_justify="left",
        padding=(0, 0, 0, 1),
    )
    table.add_column("metric", no_wrap=True)
    for column in ("n", "mean", *SHOWN, "max"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, metric in summary.metrics.items():
        shown = (metric.mean, *(metric.percentiles[q] for q in SHOWN), metric.max)
        table.add_row(name, str(metric.count), *map(_said, shown))
    return table


def _closing(timelines: list[Timeline], counted: list[Timeline], steady: Stability) -> str:
    verdict = {
        True: "steady: the last three windows are within 10 %",
        False: "not steady: the last three windows differ by more than 10 %",
        None: "steady or not: unknown, needs three windows with requests",
    }[steady.stable]
    return f"{len(counted)} of {len(timelines)} requests counted; {verdict} ({steady.window_s:g} s)"


def _said(value: float | None) -> str:
    """About four digits: enough to compare by, and columns stay narrow."""
    if value is None:
        return "-"
    return f"{value:.2f}" if abs(value) < 1000 else f"{value:,.0f}"
