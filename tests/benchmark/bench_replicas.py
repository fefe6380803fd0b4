"""Rates of hits of 1, 2, 4 and 8 replicas before the same engines: with Redis, without it, and with
a Redis that stands still for ten seconds in the middle. `make bench-replicas ARGS="--quick"`.

Hits are what the simulated engines report, over all prompt tokens. Every run has cold engines and
cold replicas, and the same requests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.block_engines import block_engines
from tests.support.redis_server import RedisServer, redis_server
from tests.support.replicas import Figures, Workload, figure, play, replicas

ENGINES = 4
BLOCKS = 1500
RATE = 40_000.0
PAUSE_S = 10.0
LONG = Workload(groups=24, conversations=240, at_once=10, think_s=0.3)
QUICK = Workload(groups=24, conversations=80, at_once=10, think_s=0.3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    replicas: int
    sharing: str
    hit_rate: float
    failures: int
    p50_ms: float
    p99_ms: float
    requests: int
    seconds: float
    dropped: int
    cpu_ms_a_request: float


async def measure(
    folder: Path, redis: RedisServer, count: int, sharing: str, load: Workload
) -> Row:
    """`sharing`: "redis", "none", or "paused"."""
    async with AsyncExitStack() as stack:
        engines = block_engines(folder, ENGINES, blocks=BLOCKS, rate=RATE)
        urls = await stack.enter_async_context(engines)
        shared = None if sharing == "none" else {"url": redis.url, "name": f"{sharing}-{count}"}
        proxies = await stack.enter_async_context(replicas(count, urls, shared))
        began, spent = time.monotonic(), sum(map(_cpu_s, (one.process.pid for one in proxies)))
        playing = asyncio.create_task(play(proxies, load))
        if sharing == "paused":
            await asyncio.sleep(load.think_s * 8)
            with redis.standing_still():
                await asyncio.sleep(PAUSE_S)
        played: Figures = await playing
        seconds = time.monotonic() - began
        spent = sum(map(_cpu_s, (one.process.pid for one in proxies))) - spent
        dropped = 0.0
        if shared is not None:
            dropped = sum([await figure(one, "dropped_messages_total") for one in proxies])
    return Row(
        replicas=count,
        sharing=sharing,
        hit_rate=played.hit_rate,
        failures=played.failures,
        p50_ms=played.quantile(0.5) * 1000,
        p99_ms=played.quantile(0.99) * 1000,
        requests=len(played.seconds),
        seconds=seconds,
        dropped=int(dropped),
        cpu_ms_a_request=spent * 1000 / max(len(played.seconds), 1),
    )


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def show(row: Row) -> str:
    return (
        f"| {row.replicas} | {row.sharing} | {row.hit_rate:.3f} | {row.failures} | "
        f"{row.p50_ms:.1f} | {row.p99_ms:.1f} | {row.requests / row.seconds:.0f} | "
        f"{row.cpu_ms_a_request:.2f} | {row.dropped} |"
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1, 2 and 4 replicas, less load")
    parser.add_argument("--arms", help="some of them: 1-redis,8-none,8-paused")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    counts = (1, 2, 4) if given.quick else (1, 2, 4, 8)
    load = QUICK if given.quick else LONG
    arms = [(count, sharing) for count in counts for sharing in ("redis", "none")]
    if not given.quick:
        arms += [(count, "paused") for count in counts]
    if given.arms:
        named = [arm.split("-") for arm in given.arms.split(",")]
        arms = [(int(count), sharing) for count, sharing in named]
    rows: list[Row] = []
    print("| replicas | sharing | hit rate | failed | p50 ms | p99 ms | req/s | CPU ms | dropped |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder, redis_server(Path(folder)) as redis:
        for count, sharing in arms:
            model = Path(folder) / f"{count}-{sharing}"
            rows.append(await measure(model, redis, count, sharing, load))
            print(show(rows[-1]), flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
