"""What the ledger costs the proxy: CPU time of the whole process with and without, in one run.

    python -m tests.benchmark.bench_ledger [--requests N] [--rounds N] [--model FILE.gguf]

Three proxies, one of them with a ledger, before one upstream that costs next to nothing, under a
closed loop that keeps a core busy. Each round loads all three for a moment, in random order, so
that what else the machine does meets all. Printed are medians of CPU microseconds for each request
(all threads, the writer's too, from the kernel's count) and of the rounds' ratios to the first
proxy; the second one, which is the same as the first, shows what of a ratio is noise.
"""

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from prefold.backends.embedded import model_path
from prefold.measurement.ledger.reader import open_ledger
from tests.benchmark.bench_proxy import CASES, Case, load, proxy, upstream

NAMES = (
    "1 KiB shared, whole",
    "16 KiB shared, whole",
    "128 KiB shared, whole",
    "128 KiB unique, whole",
    "1 KiB shared, 64 chunks",
)


PROXIES = ("CPU us", "again", "ledger")


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--requests", type=int, default=200, help="of a proxy in a round")
    arguments.add_argument("--rounds", type=int, default=25)
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


def measured(
    targets: dict[str, tuple[str, int]], case: Case, requests: int, rounds: int
) -> list[dict[str, float]]:
    """CPU microseconds for each request, by proxy, of each round after one that warms up."""
    if case.chunks:
        requests, rounds = max(requests // 8, 16), max(rounds // 4, 3)
    order, made = random.Random(case.name), []
    for seed in range(rounds + 1):
        names = order.sample(PROXIES, len(PROXIES))
        made.append({name: _loaded(targets[name], case, requests, seed) for name in names})
    return made[1:]


def _loaded(target: tuple[str, int], case: Case, requests: int, seed: int) -> float:
    url, pid = target
    return asyncio.run(load(url, case, requests, seed=seed, pid=pid, exact=True))


def show(measures: dict[str, list[dict[str, float]]]) -> None:
    table = Table("request", *PROXIES, "ratio, again", "ratio, ledger", box=None)
    for case, rounds in measures.items():
        medians = [statistics.median(made[name] for made in rounds) for name in PROXIES]
        ratios = [
            statistics.median(made[name] / made[PROXIES[0]] for made in rounds)
            for name in PROXIES[1:]
        ]
        table.add_row(case, *[f"{us:.0f}" for us in medians], *[f"{one:.3f}" for one in ratios])
    Console(width=90).print(table)


def show_file(path: Path) -> None:
    with open_ledger(path) as reader:
        about = reader.info()
    print(f"{about.rows} rows, {about.bytes / about.rows:.0f} bytes each")


if __name__ == "__main__":
    main()
