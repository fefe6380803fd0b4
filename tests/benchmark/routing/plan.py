"""Which cells are run: engines of some capacity, a workload, and how fast it comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.benchmark.routing.traces import agents, mooncake
from tests.benchmark.routing.workload import Workload, synthetic

LLAMA_CPP, MOCKER = "llama.cpp", "mocker"
SPEEDUP = 0.5
"""Of the mocker: about 25,000 uncached tokens per second and engine, 12 ms a token of answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """Files or folders of the real traces; None: a synthetic workload stands in, and says so."""

    mooncake: Path | None = None
    agents: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """All arms meet the same prompts at the same times, each on engines that have just started."""

    setup: str
    engines: int
    capacity: int
    """Of each engine: slots of llama.cpp, tokens of the mocker's KV cache."""
    workload: str
    """The one that is wanted; a synthetic one stands in where its trace is not here."""
    requests: int
    rate: float
    """Requests per second."""

    def title(self, workload: str) -> str:
        """`workload`: the one that is there."""
        unit = "tokens" if self.setup == MOCKER else "slot" if self.capacity == 1 else "slots"
        return f"{self.engines} x {self.setup}, {self.capacity:,} {unit} each, {workload}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    cells: Sequence[Cell]
    rounds: int = 1
    """Each with other prompts and times; their figures are pooled."""
    seed: int = 1
    llama_most_chars: int = 4300
    llama_at_work: int = 6
    """Sessions at once."""
    mooncake_most_tokens: int = 16_384


def full() -> Plan:
    """About 50 minutes with all arms on two idle cores, 27 of them for llama.cpp, whose rate is
    what two engines of one thread can follow. At 4,300 characters most conversations of `magagent`
    fit a slot's context whole."""
    llama = Cell(setup=LLAMA_CPP, engines=2, capacity=2, workload="agents", requests=32, rate=0.2)
    fleet = Cell(
        setup=MOCKER, engines=8, capacity=32_768, workload="mooncake", requests=400, rate=16.0
    )
    return Plan(
        cells=(
            llama,
            replace(llama, capacity=4),
            fleet,
            replace(fleet, capacity=98_304),
            replace(fleet, capacity=16_384, workload="agents"),
            replace(fleet, capacity=49_152, workload="agents"),
        )
    )


def quick() -> Plan:
    """About five minutes: that all of it works, and which way the counts go."""
    llama, _, fleet, *_ = full().cells
    return Plan(
        cells=(
            replace(llama, capacity=1, requests=10, rate=0.25),
            replace(fleet, requests=120),
        ),
        llama_at_work=3,
    )


def tiny() -> Plan:
    """A few seconds for each arm, for a test."""
    return Plan(
        cells=(
            Cell(
                setup=MOCKER,
                engines=2,
                capacity=8192,
                workload="synthetic",
                requests=24,
                rate=20.0,
            ),
        )
    )


def workload_of(cell: Cell, plan: Plan, traces: Traces, round_number: int) -> Workload:
    """Raises TraceError and OSError."""
    seed = plan.seed + round_number
    llama = cell.setup == LLAMA_CPP
    if cell.workload == "mooncake" and traces.mooncake is not None:
        file, most = traces.mooncake, plan.mooncake_most_tokens
        return mooncake(file, requests=cell.requests, most_tokens=most, seed=seed)
    if cell.workload == "agents" and traces.agents is not None:
        return agents(
            traces.agents,
            sets=("magagent",) if llama else ("miniswe", "magagent"),
            most_chars=plan.llama_most_chars if llama else 40_000,
            at_work=plan.llama_at_work if llama else 40,
            requests=cell.requests,
            seed=seed,
            answer_tokens=8 if llama else 16,
        )
    size = (100, 30) if llama else (600, 150)
    return synthetic(
        seed=seed,
        requests=cell.requests,
        at_work=plan.llama_at_work if llama else 4 * cell.engines,
        turns=6,
        system_words=size[0],
        turn_words=size[1],
    )
