"""Follows one page from its first block to its last, and compares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.walk.page import Step, agrees, ports, steps, with_ports
from tests.walk.shell import (
    Shell,
    copy_of_repository,
    environment,
    free_ports,
    left_running,
)

OURS = {"8000", "8001"}
"""What prefold listens on where it is not told otherwise."""


class Disagreement(Exception):
    """What is printed is not what the page shows."""


def walk(page: Path, folder: Path, *, installs: bool = False) -> Iterator[tuple[Step, str]]:
    """Each step with what it printed, ports as in the page. Raises Disagreement, ShellError, or
    PageError."""
    text = page.read_text(encoding="utf-8")
    named = sorted(ports(text) | OURS)
    free = dict(zip(named, free_ports(len(named)), strict=True))
    back = {other: port for port, other in free.items()}
    told = environment(port=free["8000"], admin_port=free["8001"], installed=not installs)
    copy, notes = folder / "prefold", folder / "notes"
    notes.mkdir()
    copy_of_repository(copy)
    with Shell.started(copy, notes, told) as shell:
        for step in steps(text):
            if step.is_install and not installs:
                continue
            printed = shell.type(with_ports(step.commands, free), f"line-{step.line}")
            printed = with_ports(printed, back)
            yield step, printed
            if step.shown is not None and not agrees(step.shown, printed):
                raise Disagreement(
                    f"line {step.line} shows\n{step.shown}\nbut there was printed\n{printed}"
                )
        if left := left_running(shell.process.pid):
            raise Disagreement(f"at the end {len(left)} processes were left running")
