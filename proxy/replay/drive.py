"""When requests are sent: at given times whatever comes back (open loop), or when one before them
has ended (closed loop)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from prefold.proxy.replay.prompts import Planned
from prefold.proxy.replay.send import Sent

LATE_S = 0.01
"""A request that was sent so long after it was due counts as late: then the load is not the one
that was asked for."""

Sender = Callable[[Planned, int, float], Awaitable[Sent]]
"""The request, its number, and when it is due on time.perf_counter's clock."""


async def open_loop(
    requests: Sequence[Planned],
    due_s: Sequence[float],
    send: Sender,
    on_done: Callable[[Sent], None],
) -> list[Sent]:
    """Each at its time, in seconds from now. In order of number."""
    start = time.perf_counter()
    results: list[Sent] = []

    async def one(number: int) -> None:
        sent = await send(requests[number], number, start + due_s[number])
        results.append(sent)
        on_done(sent)

    async with asyncio.TaskGroup() as group:
        for number in range(len(requests)):
            await asyncio.sleep(max(start + due_s[number] - time.perf_counter(), 0))
            group.create_task(one(number))
    return sorted(results, key=lambda sent: sent.number)


async def closed_loop(
    requests: Sequence[Planned],
    concurrency: int,
    send: Sender,
    on_done: Callable[[Sent], None],
) -> list[Sent]:
    """So many at a time, in order. In order of number."""
    pending = iter(range(len(requests)))
    results: list[Sent] = []

    async def client() -> None:
        for number in pending:
            sent = await send(requests[number], number, time.perf_counter())
            results.append(sent)
            on_done(sent)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(requests))):
            group.create_task(client())
    return sorted(results, key=lambda sent: sent.number)


def arrivals(count: int, requests_per_s: float, burstiness: float, seed: int) -> list[float]:
    """Seconds from the first request on. Gaps are gamma-distributed with `burstiness` as shape, as
    vLLM's bench has it: 1 is a Poisson process, less is burstier, more is more even."""
    source = random.Random(f"prefold replay arrivals {seed}")
    at, times = 0.0, []
    for _ in range(count):
        times.append(at)
        at += source.gammavariate(burstiness, 1 / (requests_per_s * burstiness))
    return times
