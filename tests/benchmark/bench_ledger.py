"""What the ledger costs the proxy, in CPU time.

    python -m tests.benchmark.bench_ledger [--rounds N] [--model FILE.gguf]

One proxy before one upstream that costs next to nothing, under a closed loop over kept-alive
connections that keeps its core busy. Its ledger is switched on and off every few requests
(switched_ledger.py): two processes of the same program differ by more than a ledger costs, and what
else the machine does changes from second to second. Each round is three short loads, in random
order: without, without again, and with. Printed are CPU microseconds of a request without, medians
of what the rounds' other loads took more, of the thread that all runs in, and what the ledger's own
thread took for each request that it wrote. The kernel counts. `noise` is what no ledger costs.
"""

import argparse
import asyncio
import os
import random
import signal
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from prefold.backends.embedded import model_path
from prefold.measurement.ledger.reader import open_ledger
from tests.benchmark.bench_proxy import (
    CASES,
    CONNECTIONS,
    Case,
    cpu_ns,
    proxy,
    read_rest,
    request,
    upstream,
)

BLOCKS = {
    "1 KiB shared, whole": 100,
    "16 KiB shared, whole": 100,
    "128 KiB shared, whole": 100,
    "128 KiB unique, whole": 16,
    "1 KiB shared, 64 chunks": 16,
}
"""Requests of each load, some hundredths of a second."""
WRITTEN_S = 1.0
SETTLED_S = 0.1
PACE_S = 0.001
"""Between chunks of a stream: a short while, or the proxy would idle."""
LOADS = ("without", "again", "with")


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--case", action="append", choices=list(BLOCKS), default=None)
    arguments.add_argument("--rounds", type=int, default=150)
    arguments.add_argument("--model", type=Path, default=None)
    options = arguments.parse_args()
    model = options.model or model_path()
    if model is None:
        sys.exit("no model: run `make demo` once, or give --model FILE.gguf")
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        keep_to(cores[:1])
        with switched(path, model, cores) as target:
            measures = {
                case.name: asyncio.run(measured(target, case, options.rounds))
                for case in CASES
                if case.name in (options.case or BLOCKS)
            }
        show(measures)
        show_file(path)


def keep_to(cores: Sequence[int]) -> None:
    """This process, and those that it starts after that."""
    os.sched_setaffinity(0, cores)


@dataclass(slots=True)
class Target:
    """A proxy; `thread` is its ledger's."""

    url: str
    pid: int
    thread: int
    on: bool = True

    def switch(self, *, on: bool) -> None:
        if on != self.on:
            os.kill(self.pid, signal.SIGUSR1)
            self.on = on

    def others_us(self) -> float:
        """Of all threads but the ledger's."""
        return cpu_ns(self.pid) / 1000 - self.thread_us()

    def thread_us(self) -> float:
        told = Path(f"/proc/{self.pid}/task/{self.thread}/schedstat").read_text()
        return int(told.split()[0]) / 1000


@contextmanager
def switched(path: Path, model: Path, cores: Sequence[int]) -> Iterator[Target]:
    """The proxy has the first core for itself, if there is another one."""
    told = path.with_name("thread")
    environment = {"PREFOLD_LEDGER__PATH": str(path), "LEDGER_THREAD": str(told)}
    script = Path(__file__).with_name("switched_ledger.py")
    keep_to(cores[1:] or cores)
    with upstream(model, PACE_S) as up:
        keep_to(cores[:1])
        with proxy(up, start=(str(script),), environment=environment) as (url, pid):
            keep_to(cores[1:] or cores)
            yield Target(url, pid, int(told.read_text()))


class Cost(NamedTuple):
    """CPU microseconds of a request: without a ledger, of each round; what more with none again,
    and with one; and of the ledger's thread."""

    without: list[float]
    again: list[float]
    more: list[float]
    thread: float


async def measured(target: Target, case: Case, rounds: int) -> Cost:
    size, rng, found = BLOCKS[case.name], random.Random(case.name), []
    async with connected(target.url) as streams:
        target.switch(on=False)
        await load(streams, case, [request(case, rng) for _ in range(4 * size)])
        await asyncio.sleep(WRITTEN_S)
        before = target.thread_us()
        for _ in range(rounds):
            made = {}
            for name in rng.sample(LOADS, len(LOADS)):
                made[name] = await _block(target, streams, case, size, rng, on=name == "with")
            found.append(made)
        await asyncio.sleep(WRITTEN_S)
    return Cost(
        [made["without"] for made in found],
        [made["again"] - made["without"] for made in found],
        [made["with"] - (made["without"] + made["again"]) / 2 for made in found],
        (target.thread_us() - before) / rounds / size,
    )


Streams = list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Streams]:
    port = int(url.rpartition(":")[2])
    streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS)]
    try:
        yield streams
    finally:
        for _, writer in streams:
            writer.close()


async def _block(
    target: Target, streams: Streams, case: Case, size: int, rng: random.Random, *, on: bool
) -> float:
    requests = [request(case, rng) for _ in range(size)]
    target.switch(on=on)
    before = target.others_us()
    await load(streams, case, requests)
    if not case.shared:  # what is new is tokenized after it was sent
        await asyncio.sleep(SETTLED_S)
    return (target.others_us() - before) / size


async def load(streams: Streams, case: Case, requests: Sequence[bytes]) -> None:
    coming = iter(requests)

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for raw in coming:
            writer.write(raw)
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 200 " in head, head
            await read_rest(reader, head, case)

    await asyncio.gather(*[client(*stream) for stream in streams])


def show(measures: dict[str, Cost]) -> None:
    headings = ("request", "without, us", "noise", "with, more", "its thread", "ledger")
    table = Table(*headings, box=None)
    for case, cost in measures.items():
        without, more = statistics.median(cost.without), statistics.median(cost.more)
        table.add_row(
            case,
            f"{without:.0f}",
            f"{statistics.median(cost.again):+.1f} ± {error_of(cost.again):.1f}",
            f"{more:+.1f} ± {error_of(cost.more):.1f}",
            f"{cost.thread:.1f}",
            f"{(more + cost.thread) / without:.1%} ± {error_of(cost.more) / without:.1%}",
        )
    Console(width=110).print(table)


def error_of(values: Sequence[float]) -> float:
    """Two standard errors of the median, by the quartiles: loads that something else disturbed are
    no reason to doubt the others."""
    low, _, high = statistics.quantiles(values, n=4)
    return float(2 * 1.25 * (high - low) / 1.35 / len(values) ** 0.5)


def show_file(path: Path) -> None:
    with open_ledger(path) as reader:
        about = reader.info()
    print(f"{about.rows} rows, {about.bytes / about.rows:.0f} bytes each")


if __name__ == "__main__":
    main()
