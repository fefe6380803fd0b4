"""Where prefold's CPU time goes in one case: the functions that cost most, in us per request."""

from __future__ import annotations

import json
import os
import signal
import statistics
import tempfile
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.benchmark.wire.bench import bench
from tests.benchmark.wire.peers import PREFOLD, Start, prefold_arguments, running
from tests.benchmark.wire.phases import Phase, phases
from tests.benchmark.wire.plan import CASES, Plan
from tests.benchmark.wire.processes import Cores, ProcessError, module

TOP = 30
RUNS = 8
ALL = 0.99
"""Functions that contain nearly every sample tell nothing."""
WAIT_S = 5.0
MODES = {"full": Phase.WHOLE, "burst": Phase.BURST_LONG, "stream": Phase.PACED_LONG}
NAMES = {f"{case.name}-{mode}": (case, phase) for case in CASES for mode, phase in MODES.items()}
"""What can be profiled: long streams, or whole answers."""


def profile(model: Path, cores: Cores, plan: Plan, name: str, console: Console) -> None:
    """Raises ProcessError, WrongAnswers."""
    case, phase = NAMES[name]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "samples"

        def argv(start: Start) -> list[str]:
            return module("tests.benchmark.wire.sampler", str(file), *prefold_arguments(start))

        peer = replace(PREFOLD, argv=argv)
        with (
            bench(model, cores, realtime=False) as stage,
            running(peer, PREFOLD.install(), stage.engines, cores) as target,
        ):
            scene, job = phases(plan, case, stage.tokens(case))[phase]
            job = replace(job, url=target.url, needs=target.needs)
            assert target.child is not None
            stage.measure(target, scene, replace(job, requests=plan.warm_up, seed="warm"))
            _flush(target.child.pid, file, 1)
            samples = [
                stage.measure(target, scene, replace(job, seed=f"profile {number}"))
                for number in range(RUNS)
            ]
            found = _flush(target.child.pid, file, 2)
    cpu_us = statistics.median(sample.cpu_us for sample in samples if sample.cpu_us is not None)
    _print(console, found, cpu_us, f"{case.name}, {phase}, {RUNS} x {job.requests} requests")


def _flush(pid: int, file: Path, lines: int) -> dict[str, Any]:
    """The line that the sampler writes when asked to, the `lines`-th of the file."""
    os.kill(pid, signal.SIGUSR1)
    give_up = time.monotonic() + WAIT_S
    while time.monotonic() < give_up:
        written = file.read_text() if file.exists() else ""
        if written.count("\n") == lines:
            found: dict[str, Any] = json.loads(written.splitlines()[-1])
            return found
        time.sleep(0.02)
    raise ProcessError("the sampler wrote nothing")


def _print(console: Console, found: dict[str, Any], cpu_us: float, what: str) -> None:
    samples = found["samples"]
    console.print(f"{what}: {cpu_us:.0f} us of CPU per request, {samples} samples")
    for kind, title in (("self", "by itself"), ("within", "with what it calls")):
        console.print(_table(found[kind], samples, cpu_us, title))


def _table(counts: dict[str, int], samples: int, cpu_us: float, title: str) -> Table:
    table = Table("share", "us", f"function, {title}", box=None)
    shares = ((place, count / samples) for place, count in counts.items())
    for place, share in islice((pair for pair in shares if pair[1] < ALL), TOP):
        table.add_row(f"{share:.1%}", f"{share * cpu_us:.0f}", place)
    return table
