"""CPU time of the whole proxy process, for each request and for each streamed chunk.

    python tests/benchmark/bench_proxy.py [--requests N] [--model FILE.gguf]

The proxy is a process of its own before a trivial upstream that tells llama.cpp's tokens, so every
request takes the exact path: parse, template, tokens, match, choose, relay, accounting. CPU time is
the kernel's count for all threads of the process (nanoseconds of /proc/PID/task/*/schedstat), so it
depends less on what else the machine does than seconds would.
"""

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from rich.console import Console
from rich.table import Table

from prefold.backends.embedded import model_path

WORDS = ("shelf", "river", "copper", "window", "letter", "garden", "seven", "music", "paper")
CONNECTIONS = 8
EXACT = re.compile(rb"mode=(feedback|unverified)")


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    prompt_bytes: int
    shared: bool
    chunks: int  # 0: not streamed


CASES = [
    Case("1 KiB shared, whole", 1024, True, 0),
    Case("1 KiB unique, whole", 1024, False, 0),
    Case("16 KiB shared, whole", 16 * 1024, True, 0),
    Case("16 KiB unique, whole", 16 * 1024, False, 0),
    Case("128 KiB shared, whole", 128 * 1024, True, 0),
    Case("128 KiB unique, whole", 128 * 1024, False, 0),
    Case("1 KiB shared, 64 chunks", 1024, True, 64),
    Case("1 KiB shared, 256 chunks", 1024, True, 256),
]


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--requests", type=int, default=400)
    arguments.add_argument("--model", type=Path, default=None)
    arguments.add_argument("--pace-ms", type=float, default=10.0)
    options = arguments.parse_args()
    model = options.model or model_path()
    if model is None:
        sys.exit("no model: run `make demo` once, or give --model FILE.gguf")
    with upstream(model, options.pace_ms / 1000) as up, proxy(up) as ours, bare_copy(up) as bare:
        cpu_us = {}
        for case in CASES:
            count = max(options.requests // 4, 16) if case.chunks else options.requests
            cpu_us[case.name] = (
                measured(ours, case, count, exact=True),
                measured(bare, case, count, exact=False),
            )
    show(cpu_us, options.pace_ms)


def measured(target: tuple[str, int], case: Case, count: int, *, exact: bool) -> float:
    """Median CPU us per request of three runs, after one that warms up."""
    url, pid = target
    asyncio.run(load(url, case, count // 4, seed=1, pid=pid, exact=exact))
    return statistics.median(
        asyncio.run(load(url, case, count, seed=seed, pid=pid, exact=exact)) for seed in (2, 3, 4)
    )


def show(cpu_us: dict[str, tuple[float, float]], pace_ms: float) -> None:
    table = Table("request", "prefold, CPU us", "bare aiohttp copy", "ratio", box=None)
    chunks = [
        (many - few) / 192
        for few, many in zip(cpu_us[CASES[-2].name], cpu_us[CASES[-1].name], strict=True)
    ]
    for name, (ours, bare) in {**cpu_us, "one streamed chunk": (chunks[0], chunks[1])}.items():
        table.add_row(name, f"{ours:.0f}", f"{bare:.0f}", f"{ours / bare:.1f}x")
    console = Console()
    console.print(table)
    console.print(f"medians of 3 runs, {CONNECTIONS} connections, chunks {pace_ms:g} ms apart")


async def load(url: str, case: Case, count: int, *, seed: int, pid: int, exact: bool) -> float:
    """A closed loop over a few kept-alive connections; CPU of `pid` meanwhile, us per request."""
    port = int(url.rpartition(":")[2])
    rng = random.Random(f"{case.name} {seed}")
    requests = iter([request(case, rng) for _ in range(count)])

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for raw in requests:
            writer.write(raw)
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 200 " in head, head
            assert not exact or EXACT.search(head), "not the exact path"
            await read_rest(reader, head, case)
        writer.close()

    before = cpu_ns(pid)
    await asyncio.gather(*[client() for _ in range(CONNECTIONS)])
    return (cpu_ns(pid) - before) / count / 1000


async def read_rest(reader: asyncio.StreamReader, head: bytes, case: Case) -> None:
    if case.chunks:
        await reader.readuntil(b"0\r\n\r\n")
    else:
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))


def request(case: Case, rng: random.Random) -> bytes:
    """Shared: one long system prompt and a new question; unique: another system prompt each."""
    source = random.Random(case.name) if case.shared else rng
    text = " ".join(source.choices(WORDS, k=case.prompt_bytes // 6))[: case.prompt_bytes]
    question = " ".join(rng.choices(WORDS, k=12))
    body = json.dumps(
        {
            "model": "bench",
            "messages": [
                {"role": "system", "content": text},
                {"role": "user", "content": question},
            ],
            "stream": bool(case.chunks),
            "max_tokens": case.chunks or 1,
        }
    ).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def cpu_ns(pid: int) -> int:
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks)


@contextmanager
def upstream(model: Path, pace_s: float) -> Iterator[str]:
    script = Path(__file__).with_name("trivial_upstream.py")
    with child([str(script), str(model), str(pace_s)]) as (_, url):
        yield url


@contextmanager
def bare_copy(upstream_url: str) -> Iterator[tuple[str, int]]:
    script = Path(__file__).with_name("bare_copy.py")
    with child([str(script), upstream_url]) as (pid, url):
        yield url, pid


@contextmanager
def proxy(
    upstream_url: str,
    *,
    start: Sequence[str] = ("-m", "prefold.proxy.cli"),
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[str, int]]:
    """Its URL and pid; `environment` besides our own."""
    arguments = [*start, "serve", "--backend", upstream_url]
    options = ["--port", "0", "--admin-port", "0", "--exit-with-stdin", "--log-level", "warning"]
    with child([*arguments, *options], environment) as (pid, url):
        while True:
            with suppress(HTTPError), urlopen(f"{url}/ready"):
                break
            time.sleep(0.05)
        yield url, pid


@contextmanager
def child(
    arguments: list[str], environment: Mapping[str, str] | None = None
) -> Iterator[tuple[int, str]]:
    """A process that says its address, and ends with its standard input; its pid and URL."""
    with (
        tempfile.NamedTemporaryFile() as log,
        subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**os.environ, **(environment or {})},
        ) as process,
    ):
        said = None
        while said is None:
            if process.poll() is not None:
                sys.exit(Path(log.name).read_text())
            time.sleep(0.05)
            said = re.search(r"http://[\d.:]+", Path(log.name).read_text())
        yield process.pid, said[0]
        assert process.stdin is not None
        process.stdin.close()


if __name__ == "__main__":
    main()
