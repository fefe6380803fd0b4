"""CPU time of the whole proxy process, for each request and for each streamed chunk.

    python tests/benchmark/bench_proxy.py [--requests N] [--model FILE.gguf]

The proxy is a process of its own before a trivial upstream that tells llama.cpp's tokens, so every
request takes the exact path: parse, template, tokens, match, choose, relay, accounting. CPU time is
the kernel's count for all threads of the process (nanoseconds of /proc/PID/task/*/schedstat), so it
hardly depends on what else the machine does; wall times do, and are medians beside direct ones.
"""

import argparse
import asyncio
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
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


@dataclass(frozen=True, slots=True)
class Result:
    cpu_us: float
    first_byte_ms: float


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--requests", type=int, default=400)
    arguments.add_argument("--model", type=Path, default=None)
    arguments.add_argument("--pace-ms", type=float, default=10.0)
    options = arguments.parse_args()
    model = options.model or model_path()
    if model is None:
        sys.exit("no model: run `make demo` once, or give --model FILE.gguf")
    with upstream(model, options.pace_ms / 1000) as direct, proxy(direct) as (url, pid):
        measured = {}
        for case in CASES:
            count = options.requests if not case.chunks else max(options.requests // 4, 16)
            asyncio.run(load(url, case, count // 4, seed=1, pid=pid))  # warm
            measured[case.name] = (
                asyncio.run(load(direct, case, count, seed=2, pid=pid)),
                asyncio.run(load(url, case, count, seed=2, pid=pid)),
            )
    show(measured, options.pace_ms)


def show(measured: dict[str, tuple[Result, Result]], pace_ms: float) -> None:
    table = Table("case", "CPU us/request", "first byte ms", "direct ms", "ratio", box=None)
    for name, (direct, through) in measured.items():
        table.add_row(
            name,
            f"{through.cpu_us:.0f}",
            f"{through.first_byte_ms:.2f}",
            f"{direct.first_byte_ms:.2f}",
            f"{through.first_byte_ms / direct.first_byte_ms:.1f}",
        )
    few = measured["1 KiB shared, 64 chunks"][1].cpu_us
    many = measured["1 KiB shared, 256 chunks"][1].cpu_us
    console = Console()
    console.print(table)
    console.print(
        f"CPU per streamed chunk: {(many - few) / 192:.0f} us (256 against 64 chunks,"
        f" {pace_ms:g} ms apart; {CONNECTIONS} connections)"
    )


async def load(url: str, case: Case, count: int, *, seed: int, pid: int) -> Result:
    """A closed loop over a few kept-alive connections; CPU of `pid` meanwhile, per request."""
    port = int(url.rpartition(":")[2])
    rng = random.Random(f"{case.name} {seed}")
    requests = iter([request(case, rng) for _ in range(count)])
    first_bytes: list[float] = []

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for raw in requests:
            sent = time.perf_counter()
            writer.write(raw)
            head = await reader.readuntil(b"\r\n\r\n")
            if case.chunks:
                await reader.readuntil(b"\n\n")
            first_bytes.append(time.perf_counter() - sent)
            assert b" 200 " in head, head
            assert b"X-Prefold" not in head or b"mode=feedback" in head, "not the exact path"
            await read_rest(reader, head, case)
        writer.close()

    before = cpu_ns(pid)
    await asyncio.gather(*[client() for _ in range(CONNECTIONS)])
    return Result((cpu_ns(pid) - before) / count / 1000, statistics.median(first_bytes) * 1000)


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
def proxy(upstream_url: str) -> Iterator[tuple[str, int]]:
    arguments = ["-m", "prefold.proxy.cli", "serve", "--backend", upstream_url]
    options = ["--port", "0", "--admin-port", "0", "--exit-with-stdin", "--log-level", "warning"]
    with child([*arguments, *options]) as (pid, url):
        while True:
            with suppress(HTTPError), urlopen(f"{url}/ready"):
                break
            time.sleep(0.05)
        yield url, pid


@contextmanager
def child(arguments: list[str]) -> Iterator[tuple[int, str]]:
    """A process that says its address, and ends with its standard input; its pid and URL."""
    with (
        tempfile.NamedTemporaryFile() as log,
        subprocess.Popen(
            [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=log, stderr=log
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
