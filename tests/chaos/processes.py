"""Child processes of a chaos run, and what /proc says of them.

Every process here is our own child, is signalled by its pid, and ends with our end of its standard
input, so that nothing is left behind even where the run itself is killed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ADDRESS = re.compile(r"http://[\d.]+:\d+")
START_S = 30.0


class StartFailed(Exception):
    """A process did not say its address; the message holds the end of its log."""


@dataclass(slots=True, kw_only=True)
class Child:
    """A Python process that prints its addresses when it listens; its output goes to `log`."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def addresses(self, count: int) -> list[str]:
        """The first `count` addresses that it printed; waits for them. Raises StartFailed."""
        deadline = time.monotonic() + START_S
        while len(found := ADDRESS.findall(self.log.read_text(errors="replace"))) < count:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise StartFailed(self.log.read_text(errors="replace")[-2000:])
            time.sleep(0.02)
        return found[:count]

    def say(self, line: str) -> None:
        stdin = self._stdin()
        stdin.write(line.encode() + b"\n")
        stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait for the end: its port is free then."""
        self.signal(signal.SIGKILL)
        self.process.wait()
        self._close()

    def stop(self, seconds: float = 10.0) -> None:
        """The end of its standard input, then SIGKILL; works on a stopped process too."""
        self.signal(signal.SIGCONT)
        self._close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def _stdin(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    def _close(self) -> None:
        with suppress(BrokenPipeError):  # it was killed with something unread
            self._stdin().close()


def start(arguments: list[str], log: Path) -> Child:
    """`python ARGUMENTS`, of this interpreter, in this folder."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    return Child(process=process, log=log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What a process holds now."""

    rss_kib: int
    descriptors: int


def footprint(pid: int) -> Footprint:
    status = Path(f"/proc/{pid}/status").read_text()
    resident = re.search(r"VmRSS:\s+(\d+) kB", status)
    return Footprint(
        rss_kib=int(resident[1]) if resident else 0,
        descriptors=len(os.listdir(f"/proc/{pid}/fd")),
    )
