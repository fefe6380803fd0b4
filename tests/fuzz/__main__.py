"""Generated requests and streams over sockets, and generated values into the pure parts.

    python -m tests.fuzz [--examples 100000] [--seed N] [--only NUMBER] [--failures FOLDER]

`--only` runs one case of a seed again. Exit status 1 if a rule was broken.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

from tests.fuzz.campaign import Result, campaign
from tests.fuzz.pure import PROPERTIES, run_property


def main() -> None:
    arguments = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    arguments.add_argument("--examples", type=int, default=100_000)
    arguments.add_argument("--seed", type=int, default=None)
    arguments.add_argument("--only", type=int, default=None)
    arguments.add_argument("--pure", type=int, default=5_000, help="examples of each pure property")
    arguments.add_argument("--failures", type=Path, default=Path("fuzz-failures"))
    arguments.add_argument("--json", type=Path, default=None)
    options = arguments.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    console = Console()
    console.print(f"seed {seed}")
    numbers = iter(range(1, options.examples + 1) if options.only is None else [options.only])
    with tempfile.TemporaryDirectory() as folder:
        result = uvloop.run(
            campaign(Path(folder), seed=seed, numbers=numbers, failures=options.failures)
        )
    show(result, console)
    value = result.as_dict()
    if options.only is None:
        # A failure ends the run with Hypothesis' own account of it.
        for name in PROPERTIES:
            run_property(name, options.pure, seed=seed)
        value["pure"] = dict.fromkeys(PROPERTIES, options.pure)
        console.print(f"pure properties: {len(PROPERTIES)}, {options.pure} examples each")
    for line in value["broken"]:
        console.print(f"BROKEN: {line}", style="bold red", markup=False)
    if options.json is not None:
        options.json.write_text(json.dumps(value, indent=2) + "\n")
    sys.exit(bool(value["broken"]))


def show(result: Result, console: Console) -> None:
    table = Table("what", "count", box=None)
    for name, counts in (
        ("request", result.requests),
        ("upstream", result.answers),
        ("reply", result.replies),
    ):
        for key, count in counts.most_common():
            table.add_row(f"{name}: {key}", str(count))
    table.add_row("exchanges", str(result.exchanges))
    table.add_row("exchanges a second", f"{result.exchanges / result.seconds:.0f}")
    table.add_row("leases left", str(result.leases_left))
    before, after = result.rss_kib
    table.add_row("resident memory, MiB", f"{before / 1024:.1f} -> {after / 1024:.1f}")
    console.print(table)


if __name__ == "__main__":
    main()
