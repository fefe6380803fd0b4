"""Child processes: how they are told and heard, on which cores, and what the kernel counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefold.backends import parent_death

STOP_S = 5.0
PAGE = os.sysconf("SC_PAGE_SIZE")


class ProcessError(Exception):
    """A child ended, said nothing in time, or said something else than it should."""


@dataclass(frozen=True, slots=True)
class Cores:
    """Proxies have a core of their own; the stub and the load share what is left."""

    proxy: frozenset[int]
    stub: frozenset[int]
    load: frozenset[int]

    @classmethod
    def of_this_machine(cls) -> Cores:
        """Raises ProcessError where there is one core only: all would be waiting for each other."""
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            raise ProcessError("two cores are needed: one for the proxy, one for stub and load")
        load = cores[0] if len(cores) == 2 else cores[1]
        return cls(frozenset(cores[-1:]), frozenset(cores[:1]), frozenset([load]))


@dataclass(slots=True)
class Child:
    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        """The next line that it says, as JSON. Raises ProcessError."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise ProcessError(f"{self.name} ended: {self.last_words()}")
        return json.loads(line)

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2000:].strip()

    def wait_until(self, ready: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Raises ProcessError."""
        give_up = time.monotonic() + timeout_s
        while not ready():
            if self.process.poll() is not None:
                raise ProcessError(f"{self.name} ended: {self.last_words()}")
            if time.monotonic() > give_up:
                raise ProcessError(f"{self.name} is not ready: {self.last_words()}")
            time.sleep(0.05)


@contextmanager
def child(
    name: str,
    argv: Sequence[str],
    cores: frozenset[int],
    *,
    env: Mapping[str, str] | None = None,
    realtime: bool = False,
    talks: bool = False,
) -> Iterator[Child]:
    """Standard input is a pipe, output if it `talks`; all else goes to a file. It dies with us."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with (
            log.open("wb") as written,
            subprocess.Popen(
                parent_death.command(list(argv)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if talks else written,
                stderr=written,
                env={**os.environ, **(env or {})},
            ) as process,
        ):
            try:
                # Threads and children that it will start inherit both.
                os.sched_setaffinity(process.pid, cores)
                if realtime:
                    os.sched_setscheduler(process.pid, os.SCHED_RR, os.sched_param(1))
                yield Child(name, process, log)
            finally:
                _stop(process)


def module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", name, *arguments]


def cpu_us(pid: int) -> float:
    """CPU time of a process, its threads and its living descendants, in microseconds, as the
    scheduler counts it (nanoseconds, not ticks). Threads that ended in between are missing."""
    tasks = (task for one in family(pid) for task in Path(f"/proc/{one}/task").iterdir())
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1000


def rss_mb(pid: int) -> float:
    """Resident memory of a process and its descendants; pages that they share count for each."""
    pages = (int(Path(f"/proc/{one}/statm").read_text().split()[1]) for one in family(pid))
    return sum(pages) * PAGE / 1e6


def threads(pid: int) -> int:
    return sum(len(list(Path(f"/proc/{one}/task").iterdir())) for one in family(pid))


def family(pid: int) -> list[int]:
    """The process and its living descendants."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for kid in (task / "children").read_text().split():
            found += family(int(kid))
    return found


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ours end with their standard input; others are asked to; who does not listen is killed."""
    assert process.stdin is not None
    process.stdin.close()
    for ask, wait_s in ((None, 1.0), (process.terminate, STOP_S), (process.kill, None)):
        if ask is not None:
            ask()
        with suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)
            return
