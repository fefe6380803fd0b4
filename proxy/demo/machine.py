"""What the demo ran on: numbers without it cannot be compared."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from prefold import __version__
from prefold.backends.embedded import ENGINE, MODEL_FILE, MODEL_SHA256


def describe_machine() -> dict[str, object]:
    return {
        "cpu": _cpu_name(),
        "cores": _usable_cores(),
        "memory_gib": _memory_gib(),
        "os": platform.platform(),
        "python": platform.python_version(),
        "prefold": __version__,
        "engine": f"llama.cpp in {ENGINE.name} {ENGINE.version}",
        "model": {"file": Path(MODEL_FILE).name, "sha256": MODEL_SHA256},
    }


def _cpu_name() -> str:
    """Linux keeps the marketing name in /proc/cpuinfo only."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _usable_cores() -> int | None:
    if hasattr(os, "sched_getaffinity"):  # fewer than cpu_count() under taskset or a cpuset
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _memory_gib() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
