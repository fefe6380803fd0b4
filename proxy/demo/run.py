"""The demo from fetching the engine to the last line of output."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from prefold.backends.embedded import (
    MODEL_NAME,
    EnginePaths,
    ensure_engine,
    missing_cpu_features,
)
from prefold.proxy.demo import table
from prefold.proxy.demo.arm import MAX_TOKENS, Arm, ArmRun, DemoError, Policy, run_arm
from prefold.proxy.demo.compressing import GateOptions, run_gate_demo
from prefold.proxy.demo.machine import describe_machine
from prefold.proxy.demo.report import DEFINITIONS, ArmReport, as_data, conclusion, summarise
from prefold.proxy.demo.workload import TURNS, Request, build_workload

BACKENDS = 2
MODEL_CONTEXT = 8192
# Of a prompt beside the system prompt: three short turns, their answers and template; measured
# 110 tokens at most. The rest is for system prompts that come out longer than asked for.
CONTEXT_MARGIN = 384


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    requests: int
    """In each arm."""
    tenants: int
    prefix_tokens: int
    seed: int
    slots: int
    """Of each backend in the tight arms."""
    clients: int
    roomy: bool


def run_demo(
    options: DemoOptions, *, json_file: str | None, logs: Path | None, ledger: Path | None
) -> bool:
    """Whether every request of every arm succeeded. Raises DemoError, FetchError, EngineStartError.

    `json_file` "-" is standard output, and then everything else goes to standard error.
    """
    console = Console(stderr=json_file == "-")
    if missing := missing_cpu_features():
        raise DemoError(f"the embedded engine needs a CPU with {', '.join(missing)}")
    paths = _fetch(console)
    requests = build_workload(
        seed=options.seed,
        tenants=options.tenants,
        requests=options.requests,
        prefix_tokens=options.prefix_tokens,
    )
    arms = plan_arms(options)
    console.print(heading(options, arms), highlight=False)
    with _log_folder(logs) as folder:
        reports = [summarise(_run(console, arm, paths, requests, folder, ledger)) for arm in arms]
    tight = _by_policy(reports, "tight")
    roomy = _by_policy(reports, "roomy")
    _print_reports(console, tight, roomy)
    data = as_json(options, arms, tight, roomy)
    if json_file == "-":
        print(data)
    elif json_file is not None:
        Path(json_file).write_text(data + "\n")
    return not any(report.errors for report in reports)


def show_gate(
    options: GateOptions, *, json_file: str | None, logs: Path | None, ledger: Path | None
) -> bool:
    """As `run_demo`, of compression."""
    console = Console(stderr=json_file == "-")
    if missing := missing_cpu_features():
        raise DemoError(f"the embedded engine needs a CPU with {', '.join(missing)}")
    paths = _fetch(console)
    with _log_folder(logs) as folder:
        return run_gate_demo(options, paths, console, folder, json_file, ledger)


def plan_arms(options: DemoOptions) -> list[Arm]:
    """In the order they run: the order of the two policies is drawn from the seed."""
    policies: list[Policy] = random.Random(options.seed).sample(get_args(Policy), 2)
    context = round_up(round(options.prefix_tokens * 1.1) + CONTEXT_MARGIN, 256)
    if context > MODEL_CONTEXT:
        raise DemoError(
            f"--prefix-tokens {options.prefix_tokens}: {MODEL_NAME} has {MODEL_CONTEXT}"
        )
    arms = [
        Arm(
            policy=policy,
            cache="tight",
            backends=BACKENDS,
            slots=options.slots,
            context_per_slot=context,
            clients=options.clients,
        )
        for policy in policies
    ]
    if options.roomy:
        slots = max(options.slots, options.tenants)  # one for every tenant, on every backend
        arms += [replace(arm, cache="roomy", slots=slots) for arm in arms]
    return arms


def round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def heading(options: DemoOptions, arms: Sequence[Arm]) -> str:
    arm = arms[0]
    order = ", ".join(f"{arm.policy} ({arm.cache})" for arm in arms)
    roomy = f" (roomy: {arms[-1].slots})" if options.roomy else ""
    return (
        f"{MODEL_NAME} on {arm.backends} llama.cpp backends of 1 thread, "
        f"{arm.slots} slots of {arm.context_per_slot:,} tokens each{roomy}.\n"
        f"{options.requests} requests per arm from {options.tenants} tenants with system prompts "
        f"of about {options.prefix_tokens} tokens, conversations of {TURNS} turns, at most "
        f"{MAX_TOKENS} tokens of answer; clients in a closed loop: {options.clients}, one request "
        f"of a tenant at a time.\n"
        f"Engines restarted for each arm, in this order: {order}; seed {options.seed}."
    )


def as_json(
    options: DemoOptions,
    arms: Sequence[Arm],
    tight: Sequence[ArmReport],
    roomy: Sequence[ArmReport],
) -> str:
    """`arms` holds the tight cache only, so that a policy names one entry."""
    settings = {
        **asdict(options),
        "backends": BACKENDS,
        "context_per_slot": arms[0].context_per_slot,
        "threads_per_backend": 1,
        "turns_per_conversation": TURNS,
        "max_tokens": MAX_TOKENS,
        "order": [{"policy": arm.policy, "cache": arm.cache} for arm in arms],
    }
    return json.dumps(
        {
            "machine": describe_machine(),
            "settings": settings,
            "definitions": DEFINITIONS,
            "arms": [as_data(report) for report in tight],
            "arms_roomy": [as_data(report) for report in roomy],
        },
        indent=2,
    )


def _fetch(console: Console) -> EnginePaths:
    """Steps without a measure become lines, bytes a bar."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("", visible=False)

        def show(what: str, done: int, total: int) -> None:
            if total:
                progress.update(task, description=what, completed=done, total=total, visible=True)
            else:
                progress.update(task, visible=False)
                progress.console.print(what, highlight=False)

        return ensure_engine(progress=show)


def _run(
    console: Console,
    arm: Arm,
    paths: EnginePaths,
    requests: Sequence[Request],
    logs: Path,
    ledger: Path | None,
) -> ArmRun:
    name = f"{arm.cache} cache, {arm.policy}"
    if not console.is_terminal:
        console.print(f"running: {name}", highlight=False)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task(name, total=len(requests))
        return run_arm(
            arm,
            paths,
            requests,
            logs=logs,
            on_done=lambda: progress.advance(task),
            ledger=ledger,
        )


def _by_policy(reports: Sequence[ArmReport], cache: str) -> list[ArmReport]:
    """Round robin first, whatever order they ran in; [] if that cache was not run."""
    chosen = {report.policy: report for report in reports if report.cache == cache}
    return [chosen[policy] for policy in get_args(Policy)] if chosen else []


def _print_reports(
    console: Console, tight: Sequence[ArmReport], roomy: Sequence[ArmReport]
) -> None:
    console.print()
    console.print(table.comparison(f"Tight cache: {tight[0].slots} slots", *tight))
    if roomy:
        console.print(table.comparison(f"Roomy cache: {roomy[0].slots} slots", *roomy))
        why = table.why_roomy_gains_less(tight[0], roomy[0])
        console.print(why, highlight=False)
    console.print(table.LEGEND, style="dim", highlight=False)
    for report in (*tight, *roomy):
        for complaint in table.complaints(report):
            console.print(complaint, style="bold red", highlight=False)
    console.print(conclusion(*tight), style="bold", highlight=False)


@contextmanager
def _log_folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="prefold-demo-") as folder:
        yield Path(folder)
