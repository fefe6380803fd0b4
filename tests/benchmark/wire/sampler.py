"""prefold under a sampling profiler: `python -m tests.benchmark.wire.sampler FILE ARGUMENTS...`.

The kernel's CPU timer interrupts it, so that idle time is no sample and what was sampled costs
about as much as without. ARGUMENTS are prefold's. FILE gets one line of JSON on SIGUSR1, and the
counts begin anew: {"samples": N, "self": {place: n}, "within": {place: n}}.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

from prefold.proxy.cli import main as prefold

INTERVAL_S = 0.001
"""At the kernel's own resolution, where that is coarser."""


class Sampler:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._own: Counter[tuple[str, str]] = Counter()
        self._within: Counter[tuple[str, str]] = Counter()

    def sample(self, _: int, frame: FrameType | None) -> None:
        """Time in C code counts for the Python function that called it."""
        if frame is None:
            return
        self._own[_place(frame)] += 1
        stack = set()
        while frame is not None:
            stack.add(_place(frame))
            frame = frame.f_back
        self._within.update(stack)

    def write(self, _: int, __: FrameType | None) -> None:
        said = {
            "samples": self._own.total(),
            "self": {_shown(place): count for place, count in self._own.most_common()},
            "within": {_shown(place): count for place, count in self._within.most_common()},
        }
        with self._file.open("a") as file:
            file.write(json.dumps(said) + "\n")
        self._own.clear()
        self._within.clear()


def _place(frame: FrameType) -> tuple[str, str]:
    return frame.f_code.co_filename, frame.f_code.co_qualname


def _shown(place: tuple[str, str]) -> str:
    file = Path(place[0])
    return f"{file.parent.name}/{file.name} {place[1]}"


def main() -> None:
    _, file, *arguments = sys.argv
    sampler = Sampler(Path(file))
    signal.signal(signal.SIGUSR1, sampler.write)
    signal.signal(signal.SIGPROF, sampler.sample)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
    prefold(arguments)


if __name__ == "__main__":
    main()
