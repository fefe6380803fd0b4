"""What routing by prefix saves on real engines, beside simpler policies and other routers.

    python -m tests.benchmark.routing [--quick] [--mooncake FILE] [--agents FILE]
        [--json FILE] [--markdown FILE] [--arms a,b] [--setups llama.cpp,mocker] [--rounds N]

Two setups: llama.cpp engines, and the mocker's engines (real scheduler, prefix cache, evictions;
no model). Traces are not part of the repository: --mooncake is conversation_trace.jsonl out of
github.com/kvcache-ai/Mooncake (FAST25-release), --agents the folder miniswe, magagent and taubench
of github.com/LMCache/lmcache-agent-trace are in, or a tar file of it; either may be compressed.
Without them a synthetic workload stands in, and the tables say so.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from prefold.backends.embedded import ensure_engine
from prefold.backends.wheel_cache import FetchError
from prefold.proxy.demo.machine import describe_machine
from prefold.proxy.simulate.trace import TraceError
from tests.benchmark.routing.arms import ARMS, installed
from tests.benchmark.routing.bench import Bench, run
from tests.benchmark.routing.plan import LLAMA_CPP, MOCKER, Plan, Traces, full, quick, tiny
from tests.benchmark.routing.show import as_markdown, print_tables
from tests.benchmark.wire.install import Unavailable
from tests.support import mocker
from tests.support.mocker import MockerUnavailable

SETUPS = (LLAMA_CPP, MOCKER)
PLANS = {"full": full, "quick": quick, "tiny": tiny}


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    plan = replace(PLANS[options.size](), rounds=options.rounds, seed=options.seed)
    plan = replace(plan, cells=[each for each in plan.cells if each.setup in options.setups])
    traces = Traces(mooncake=options.mooncake, agents=options.agents)
    try:
        report = compare(options.arms, plan, traces, console)
    except (FetchError, TraceError, OSError) as error:
        sys.exit(str(error))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if options.markdown:
        options.markdown.write_text(as_markdown(report), encoding="utf-8")


def compare(wanted: Sequence[str], plan: Plan, traces: Traces, console: Console) -> dict[str, Any]:
    """The whole run, printed as tables; what --json writes. Raises FetchError, TraceError and
    OSError."""
    started, load_before = time.time(), os.getloadavg()
    missing: dict[str, str] = {}
    arms = []
    for name in wanted:
        try:
            arms.append((ARMS[name], installed(ARMS[name])))
        except Unavailable as error:
            missing[name] = str(error)
    engines = None
    try:
        engines = mocker.install() if any(each.setup == MOCKER for each in plan.cells) else None
    except MockerUnavailable as error:
        missing[MOCKER] = str(error)
    bench = Bench(paths=ensure_engine(), mocker=engines, arms=arms, traces=traces)
    results = run(bench, plan, lambda line: console.print(f"[dim]{line}"))
    report = {
        "machine": describe_machine(),
        "load_average_before": load_before,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "seconds": round(time.time() - started, 1),
        "mocker": mocker.VERSION if engines is not None else None,
        "rounds": plan.rounds,
        "seed": plan.seed,
        "cells": results.cells,
        "arms": {
            arm.name: {"about": arm.about, "version": program.version} for arm, program in arms
        },
        "not_run": missing | results.failed,
        "rows": results.rows,
    }
    print_tables(console, report)
    return report


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench-routing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--mooncake", type=Path, metavar="FILE", help="its conversation trace")
    parser.add_argument("--agents", type=Path, metavar="FILE", help="LMCache's agent trace")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there")
    parser.add_argument(
        "--arms", type=_names(ARMS), default=list(ARMS), help=f"of {', '.join(ARMS)}"
    )
    parser.add_argument(
        "--setups", type=_names(SETUPS), default=list(SETUPS), help=f"of {', '.join(SETUPS)}"
    )
    parser.add_argument("--rounds", type=int, default=1, help="with other prompts (default: 1)")
    parser.add_argument("--seed", type=int, default=1)
    sizes = parser.add_mutually_exclusive_group()
    for size, what in (("quick", "about five minutes"), ("tiny", "only to see that it works")):
        sizes.add_argument(
            f"--{size}", dest="size", action="store_const", const=size, default="full", help=what
        )
    return parser.parse_args(arguments)


def _names(known: Collection[str]) -> Callable[[str], list[str]]:
    """Splits at commas, and knows its own only."""

    def names(text: str) -> list[str]:
        wanted = text.split(",")
        if unknown := set(wanted).difference(known):
            raise argparse.ArgumentTypeError(f"{unknown.pop()} is none of {', '.join(known)}")
        return wanted

    return names


if __name__ == "__main__":
    main()
