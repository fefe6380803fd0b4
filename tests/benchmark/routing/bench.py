"""The run: for each cell, one arm after the other on engines that have just started.

The order of arms turns round from cell to cell and from round to round.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from prefold.backends.embedded import EnginePaths
from prefold.backends.engine_process import EngineStartError
from tests.benchmark.routing.arms import Arm, Program, in_front
from tests.benchmark.routing.bounds import Bounds, bounds_of
from tests.benchmark.routing.fleets import MODEL, Counters, Fleet, FleetError, counters, llama_cpp
from tests.benchmark.routing.load import play
from tests.benchmark.routing.mockers import mockers
from tests.benchmark.routing.plan import LLAMA_CPP, MOCKER, SPEEDUP, Cell, Plan, Traces, workload_of
from tests.benchmark.routing.rows import Outcome, Row, row_of
from tests.benchmark.routing.workload import Workload, arrivals
from tests.benchmark.wire.processes import ProcessError


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    paths: EnginePaths
    """Of llama.cpp, and of the model whose tokenizer the mockers have too."""
    mocker: Path | None
    """The Python of its environment; None: its cells are left out."""
    arms: Sequence[tuple[Arm, Program]]
    traces: Traces

    def cells(self, plan: Plan) -> list[Cell]:
        return [each for each in plan.cells if each.setup != MOCKER or self.mocker is not None]

    def arms_of(self, cell: Cell) -> list[tuple[Arm, Program]]:
        return [each for each in self.arms if cell.setup == MOCKER or not each[0].events]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What all arms of a cell and round are given."""

    workload: Workload
    arrivals: Sequence[float]
    bounds: Bounds


@dataclass(slots=True)
class Results:
    rows: list[Row] = field(default_factory=list)
    cells: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By title: what was set, and what its workload is."""
    failed: dict[str, str] = field(default_factory=dict)
    """By cell and arm: why it has no row."""


def run(bench: Bench, plan: Plan, tell: Callable[[str], None]) -> Results:
    """`tell` is called with a line of progress. Raises TraceError and OSError."""
    results = Results()
    for number, cell in enumerate(bench.cells(plan)):
        scripts = [_script(bench, plan, cell, each) for each in range(plan.rounds)]
        title = cell.title(scripts[0].workload.name)
        about = scripts[0].workload.about
        results.cells[title] = {**asdict(cell), "workload_is": about}
        arms = bench.arms_of(cell)
        outcomes: dict[str, list[Outcome]] = {arm.name: [] for arm, _ in arms}
        for round_number, script in enumerate(scripts):
            for arm, program in arms[::-1] if (number + round_number) % 2 else arms:
                tell(f"{title}: {arm.name}")
                try:
                    outcomes[arm.name].append(_outcome(bench, cell, script, arm, program))
                except (FleetError, ProcessError, EngineStartError) as error:
                    results.failed[f"{title}, {arm.name}"] = str(error)
        results.rows += [
            {"cell": title, **row_of(cell, name, found)}
            for name, found in outcomes.items()
            if len(found) == plan.rounds
        ]
    return results


def _script(bench: Bench, plan: Plan, cell: Cell, round_number: int) -> Script:
    workload = workload_of(cell, plan, bench.traces, round_number)
    pooled = cell.capacity * cell.engines if cell.setup == MOCKER else None
    return Script(
        workload=workload,
        arrivals=arrivals(len(workload.prompts), cell.rate, plan.seed + round_number),
        bounds=bounds_of(workload.prompts, bench.paths.model, pooled),
    )


def _outcome(bench: Bench, cell: Cell, script: Script, arm: Arm, program: Program) -> Outcome:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-routing-")))
        fleet = stack.enter_context(_fleet(bench, cell, folder))
        url = stack.enter_context(in_front(arm, program, fleet, folder))
        before = counters(fleet)
        samples = asyncio.run(play(url, script.workload.prompts, script.arrivals, MODEL))
        after = counters(fleet)
    return Outcome(
        samples=samples,
        arrivals=script.arrivals,
        counted=[
            Counters(now.computed - then.computed, now.cached - then.cached)
            for now, then in zip(after, before, strict=True)
        ],
        bounds=script.bounds,
    )


@contextmanager
def _fleet(bench: Bench, cell: Cell, folder: Path) -> Iterator[Fleet]:
    if cell.setup == LLAMA_CPP:
        with llama_cpp(
            bench.paths, engines=cell.engines, slots=cell.capacity, folder=folder
        ) as fleet:
            yield fleet
        return
    assert bench.mocker is not None
    with mockers(
        bench.mocker,
        bench.paths.model,
        engines=cell.engines,
        tokens=cell.capacity,
        speedup=SPEEDUP,
        folder=folder,
    ) as fleet:
        yield fleet
