"""Backends die, hang and lose their network under load; then restarts under load.

    python -m tests.chaos [--seconds 60] [--seed N] [--engine scripted|llama.cpp] [--json FILE]

Exit status 1 if a rule was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from pathlib import Path

import uvloop
from rich.console import Console

from tests.chaos import report
from tests.chaos.restarts import restarts
from tests.chaos.storm import storm


def main() -> None:
    arguments = argparse.ArgumentParser(prog="tests.chaos", description=__doc__)
    arguments.add_argument("--seconds", type=float, default=60.0)
    arguments.add_argument("--seed", type=int, default=None)
    arguments.add_argument("--workers", type=int, default=24, help="clients at once")
    arguments.add_argument("--backends", type=int, default=3)
    arguments.add_argument("--engine", choices=("scripted", "llama.cpp"), default="scripted")
    arguments.add_argument("--restarts", type=int, default=5, help="0: none")
    arguments.add_argument("--json", type=Path, default=None)
    arguments.add_argument("--logs", type=Path, default=None, help="folder for logs to keep")
    options = arguments.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    console = Console()
    console.print(f"seed {seed}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.logs or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        outcome = uvloop.run(
            storm(
                folder,
                seed=seed,
                seconds=options.seconds,
                workers=options.workers,
                engine=options.engine,
                count=options.backends,
            )
        )
        report.show(outcome, console)
        result = report.as_dict(outcome)
        if options.restarts:
            rounds = asyncio.run(restarts(folder, rounds=options.restarts, seed=seed))
            console.print(rounds.line())
            result["restarts"] = rounds.as_dict()
            result["broken"] += rounds.broken()
            for line in rounds.broken():
                console.print(f"BROKEN: {line}", style="bold red")
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    sys.exit(bool(result["broken"]))


if __name__ == "__main__":
    main()
