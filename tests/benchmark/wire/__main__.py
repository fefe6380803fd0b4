"""The cost of the proxy beside that of others, in one run.

    python -m tests.benchmark.wire [--quick] [--json FILE] [--peers a,b] [--rounds N]
    python -m tests.benchmark.wire --profile 128-shared-full

The peers are fetched once, into environments of their own in the cache folder. CPU time is the
kernel's count for all threads of a proxy, which has a core of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from prefold.backends.embedded import ensure_engine
from prefold.backends.wheel_cache import FetchError
from prefold.proxy.demo.machine import describe_machine
from tests.benchmark.wire.bench import Results, WrongAnswers, bench, run, targets
from tests.benchmark.wire.install import Unavailable
from tests.benchmark.wire.peers import DIRECT, PEERS, Peer
from tests.benchmark.wire.plan import CASES, Plan, plan_of
from tests.benchmark.wire.processes import Cores, ProcessError
from tests.benchmark.wire.profiling import NAMES, profile
from tests.benchmark.wire.rows import rows
from tests.benchmark.wire.show import print_tables

STALLED_MS = 30.0


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    plan = plan_of(options.size, rounds=options.rounds, cases=options.cases)
    try:
        cores, model = Cores.of_this_machine(), ensure_engine().model
        if options.profile:
            profile(model, cores, plan, options.profile, console)
            return
        report = compare(options.peers, model, cores, plan, console, realtime=options.realtime)
    except (ProcessError, FetchError, WrongAnswers) as error:
        sys.exit(str(error))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def compare(
    wanted: Sequence[str],
    model: Path,
    cores: Cores,
    plan: Plan,
    console: Console,
    *,
    realtime: bool = False,
) -> dict[str, Any]:
    """The whole run, printed as tables; what --json writes. Raises ProcessError."""
    started, load_before = time.time(), os.getloadavg()
    found, missing = _installed(wanted, console)
    with (
        bench(model, cores, realtime=realtime) as stage,
        targets(stage, found, cores, realtime=realtime) as running,
    ):
        results = run(stage, running, plan, lambda line: console.print(f"[dim]{line}"))
    names = list(running)
    made = rows(results, names, plan)
    print_tables(console, made, names, plan)
    return {
        "machine": describe_machine(),
        "load_average_before": load_before,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "seconds": round(time.time() - started, 1),
        "cores": {name: sorted(used) for name, used in asdict(cores).items()},
        "realtime_scheduling": realtime,
        "plan": asdict(plan),
        "peers": {
            peer.name: {
                "version": peer.version(program),
                "about": peer.about,
                **_tcp(results, peer.name),
            }
            for peer, program in found
        },
        "not_run": missing,
        "direct": _tcp(results, DIRECT),
        "rows": made,
    }


def _installed(
    wanted: Sequence[str], console: Console
) -> tuple[list[tuple[Peer, Path]], dict[str, str]]:
    """The peers that can be had, and why others cannot."""
    found, missing = [], {}
    for name in wanted:
        try:
            found.append((PEERS[name], PEERS[name].install()))
        except Unavailable as error:
            missing[name] = str(error)
            console.print(f"{name} is left out: {error}")
    return found, missing


def _tcp(results: Results, name: str) -> dict[str, Any]:
    """Observed, not asked for: the event that follows the head waits for an acknowledgement only on
    a connection without TCP_NODELAY."""
    waited = results.after_head_ms[name]
    nodelay = None if waited is None else waited < STALLED_MS
    return {"first_event_ms_where_3_after_head": waited, "tcp_nodelay": nodelay}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-wire", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    parser.add_argument(
        "--peers",
        type=_names(PEERS),
        default=list(PEERS),
        help=f"of {', '.join(PEERS)}; {DIRECT} is always there",
    )
    parser.add_argument(
        "--cases",
        type=_names([case.name for case in CASES]),
        default=[],
        help=f"of {', '.join(case.name for case in CASES)} (default: all)",
    )
    parser.add_argument("--rounds", type=int, default=3, help="of the full run (default: 3)")
    parser.add_argument(
        "--quick",
        dest="size",
        action="store_const",
        const="quick",
        default="full",
        help="at most five minutes, one round",
    )
    parser.add_argument(
        "--tiny", dest="size", action="store_const", const="tiny", help="only to see that it works"
    )
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="SCHED_RR for proxies, stub and load: needs rights, and starves the rest",
    )
    parser.add_argument(
        "--profile", choices=NAMES, metavar="CASE", help=f"one of {', '.join(NAMES)}"
    )
    return parser.parse_args(arguments)


def _names(known: Collection[str]) -> Callable[[str], list[str]]:
    """Splits at commas, and knows its own only."""

    def names(text: str) -> list[str]:
        wanted = [name for name in text.split(",") if name != DIRECT]
        if unknown := set(wanted).difference(known):
            raise argparse.ArgumentTypeError(f"{unknown.pop()} is none of {', '.join(known)}")
        return wanted

    return names


if __name__ == "__main__":
    main()
