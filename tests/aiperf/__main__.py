"""`make check-aiperf`: aiperf through the proxy to a real engine, and both sides' figures of the
same requests."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from prefold.backends.embedded import ensure_engine
from prefold.measurement.benefit.timelines import timeline_of
from prefold.measurement.definitions.profiles import AIPERF
from prefold.measurement.definitions.timeline import Timeline
from prefold.measurement.ledger.reader import open_ledger
from tests.aiperf import tool
from tests.aiperf.compare import Compared, compare
from tests.benchmark.wire.install import Unavailable
from tests.wire.process import proxy_process
from tests.wire.raw_client import ask, post


@click.command()
@click.option("--requests", default=24, show_default=True, type=click.IntRange(2))
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path))
def main(requests: int, json_file: Path | None) -> None:
    """Exit status 1 if a figure of ours is not aiperf's."""
    console = Console()
    console.print(f"aiperf {tool.VERSION}: installed on the first run (1.2 GB, some minutes)")
    with tempfile.TemporaryDirectory() as folder:
        try:
            ours, told = asyncio.run(_both(Path(folder), requests))
        except Unavailable as error:
            raise click.ClickException(str(error)) from None
    found = compare(ours, told.requests)
    console.print(_table(found))
    matched = len(ours.keys() & told.requests.keys())
    console.print(
        f"{matched} of {requests} requests compared, by their X-Request-ID; definitions of"
        f" {AIPERF.label}. aiperf's clock is its client's, ours the proxy's: it has the way between"
        " the two in its times."
    )
    if json_file is not None:
        json_file.write_text(json.dumps([_plain(one) for one in found], indent=2) + "\n")
    sys.exit(0 if matched == requests and all(one.agrees for one in found) else 1)


async def _both(folder: Path, requests: int) -> tuple[dict[str, Timeline], tool.Told]:
    ledger = folder / "ledger"
    gguf = ensure_engine().model
    config = f'[server]\nport = 0\nadmin_port = 0\n[ledger]\npath = "{ledger}"\n'
    async with proxy_process(config, "--embedded", "1") as proxy:
        models: list[str] = []
        while not models:  # until the engine was probed
            answer = await ask(proxy.url, post("/v1/models", b"", method="GET"))
            models = [model["id"] for model in answer.json()["data"]]
            await asyncio.sleep(0.2)
        told = await asyncio.to_thread(tool.run, proxy.url, models[0], gguf, folder, requests)
    with open_ledger(ledger) as reader:
        rows = {row.request_id or "": timeline_of(row) for row in reader.rows()}
    return rows, told


def _table(found: list[Compared]) -> Table:
    table = Table(
        box=SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
        title="medians over requests, and the largest difference of one",
        title_justify="left",
    )
    table.add_column("metric", no_wrap=True)
    for column in ("n", "ours", "aiperf", "difference", "largest", ""):
        table.add_column(column, justify="right", no_wrap=True)
    for one in found:
        differences = one.differences
        cells = ["-"] * 4
        if differences:
            values = (
                statistics.median(one.ours),
                statistics.median(one.theirs),
                statistics.median(differences),
                max(differences, key=abs),
            )
            cells = [f"{value:.1f}" for value in values]
        verdict = "agrees" if one.agrees else "differs"
        table.add_row(f"{one.name} ({one.unit})", str(len(differences)), *cells, verdict)
    return table


def _plain(one: Compared) -> dict[str, object]:
    return {
        "metric": one.name,
        "unit": one.unit,
        "ours": list(one.ours),
        "aiperf": list(one.theirs),
        "agrees": one.agrees,
    }


if __name__ == "__main__":
    main()
