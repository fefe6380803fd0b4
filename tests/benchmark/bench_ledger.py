"""What the ledger costs the proxy: CPU time of the whole process with and without, in one run.

    python -m tests.benchmark.bench_ledger [--requests N] [--rounds N] [--model FILE.gguf]

Three proxies, one of them with a ledger, before one upstream that costs next to nothing, under a
closed loop that keeps a core busy. Each round loads all three for a moment, in random order, so
that what else the machine does meets all, and waits until the ledger's thread has written it.
Printed are medians of CPU microseconds for each request (all threads, from the kernel's count), of
the ledger's threads but the first, and of the rounds' ratios to the first proxy; the second one,
which is the same as the first, shows what of a ratio is noise.
"""

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from prefold.backends.embedded import model_path
from prefold.measurement.ledger.reader import open_ledger
from tests.benchmark.bench_proxy import CASES, Case, cpu_ns, load, proxy, upstream

NAMES = (
    "1 KiB shared, whole",
    "16 KiB shared, whole",
    "128 KiB shared, whole",
    "128 KiB unique, whole",
    "1 KiB shared, 64 chunks",
)

WRITTEN_S = 0.8
PROXIES = ("CPU us", "again", "ledger")


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--requests", type=int, default=600, help="of a proxy in a round")
    arguments.add_argument("--rounds", type=int, default=15)
    arguments.add_argument("--model", type=Path, default=None)
    options = arguments.parse_args()
    model = options.model or model_path()
    if model is None:
        sys.exit("no model: run `make demo` once, or give --model FILE.gguf")
    cases = [case for case in CASES if case.name in NAMES]
    with tempfile.TemporaryDirectory() as folder, upstream(model, 0.01) as up:
        path = Path(folder) / "ledger.sqlite"
        with proxy(up) as bare, proxy(up) as again, with_ledger(up, path) as kept:
            targets = dict(zip(PROXIES, (bare, again, kept), strict=True))
            measures = {
                case.name: measured(targets, case, options.requests, options.rounds)
                for case in cases
            }
        show(measures)
        show_file(path)


@contextmanager
def with_ledger(up: str, path: Path) -> Iterator[tuple[str, int]]:
    os.environ["PREFOLD_LEDGER__PATH"] = str(path)
    try:
        with proxy(up) as started:
            del os.environ["PREFOLD_LEDGER__PATH"]
            yield started
    finally:
        os.environ.pop("PREFOLD_LEDGER__PATH", None)


class Cost(NamedTuple):
    """CPU microseconds for each request: of all threads, and of those but the first."""

    all_us: float
    others_us: float


def measured(
    targets: dict[str, tuple[str, int]], case: Case, requests: int, rounds: int
) -> list[dict[str, Cost]]:
    """By proxy, of each round after one that warms up."""
    if case.chunks:
        requests = max(requests // 6, 16)
    order, made = random.Random(case.name), []
    for seed in range(rounds + 1):
        names = order.sample(PROXIES, len(PROXIES))
        made.append({name: _loaded(targets[name], case, requests, seed) for name in names})
    return made[1:]


def _loaded(target: tuple[str, int], case: Case, requests: int, seed: int) -> Cost:
    url, pid = target
    before = cpu_ns(pid), _first_ns(pid)
    asyncio.run(load(url, case, requests, seed=seed, pid=pid, exact=True))
    time.sleep(WRITTEN_S)
    whole, first = cpu_ns(pid) - before[0], _first_ns(pid) - before[1]
    return Cost(whole / requests / 1000, (whole - first) / requests / 1000)


def _first_ns(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0])


def show(measures: dict[str, list[dict[str, Cost]]]) -> None:
    table = Table("request", *PROXIES, "its threads", "ratio, again", "ratio, ledger", box=None)
    for case, rounds in measures.items():
        medians = [statistics.median(made[name].all_us for made in rounds) for name in PROXIES]
        threads = statistics.median(made[PROXIES[-1]].others_us for made in rounds)
        ratios = [
            statistics.median(made[name].all_us / made[PROXIES[0]].all_us for made in rounds)
            for name in PROXIES[1:]
        ]
        figures = [*(f"{us:.0f}" for us in medians), f"{threads:.1f}"]
        table.add_row(case, *figures, *(f"{one:.3f}" for one in ratios))
    Console(width=100).print(table)


def show_file(path: Path) -> None:
    with open_ledger(path) as reader:
        about = reader.info()
    print(f"{about.rows} rows, {about.bytes / about.rows:.0f} bytes each")


if __name__ == "__main__":
    main()
