"""One run: load and faults at the same time, then peace, then the count of what is left."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from tests.chaos.clients import Tally, connected
from tests.chaos.dialects import Dialect, LlamaCpp, Scripted
from tests.chaos.figures import Stalls, all_up, in_flight, metrics, unexpected
from tests.chaos.fleet import Backend, LlamaBackend, Member, Proxy, ScriptedBackend, start_proxy
from tests.chaos.fleet import backends as running_backends
from tests.chaos.plan import Event, plan
from tests.chaos.processes import Footprint, footprint

SETTLE_S = 20.0
"""More than any limit in the settings of the proxy: whatever is in flight after that stays so."""


IDLE_CLOSED_S = 9.0
"""The proxy's client closes connections that were idle for 4 s."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What the run came to; `report` judges it."""

    seed: int
    seconds: float
    backends: int
    faults: Counter[str]
    tally: Tally
    retried: int = 0
    leases_left: int = 0
    before: Footprint
    after: Footprint
    log_faults: int = 0
    proxy_alive: bool = True
    recovered: bool = True
    """Every backend was ready again at the end."""
    stalls: Stalls = field(default_factory=Stalls)


async def storm(
    folder: Path, *, seed: int, seconds: float, workers: int, engine: str, count: int
) -> Outcome:
    """`count` backends of that kind under `workers` clients for so long."""
    made, dialect = fleet_of(engine, folder, count)
    with running_backends(folder, made) as members:
        # A real engine on a shared core takes seconds for what the scripted one does at once.
        first_byte_s = 4.0 if engine == "scripted" else 20.0
        urls = [member.url for member in members]
        proxy = start_proxy(folder, urls, first_byte_s=first_byte_s)
        try:
            return await _storm(proxy, members, dialect, seed, seconds, workers)
        finally:
            proxy.child.stop()


def fleet_of(engine: str, folder: Path, count: int) -> tuple[list[Backend], Dialect]:
    if engine == "llama.cpp":
        return [LlamaBackend("m") for _ in range(count)], LlamaCpp("m")
    # A model that every backend serves, and one that the first does not.
    made: list[Backend] = [
        ScriptedBackend(folder, f"b{number}", ["m", "big"] if number else ["m"])
        for number in range(count)
    ]
    return made, Scripted(["m", "m", "big"])


async def _storm(
    proxy: Proxy,
    members: Sequence[Member],
    dialect: Dialect,
    seed: int,
    seconds: float,
    workers: int,
) -> Outcome:
    timeout = aiohttp.ClientTimeout(total=30)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        if not await all_up(http, proxy.url, len(members), seconds=30):
            raise RuntimeError("the backends were not ready before the run")
        before = footprint(proxy.child.pid)
        events = plan(seed, seconds, [member.relay is not None for member in members])
        stalls = Stalls()
        async with connected(proxy.url, dialect) as load:
            stop = asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(stalls.watch(http, proxy.url, stop))
                for number in range(workers):
                    tasks.create_task(load.worker(seed * 1000 + number, stop))
                await _play(events, members, seconds)
                stop.set()
        recovered = await all_up(http, proxy.url, len(members), seconds=SETTLE_S)
        left = await in_flight(http, proxy.admin_url, seconds=SETTLE_S)
        retried = await metrics(http, proxy.admin_url, "prefold_retries_total")
        await _quiet(proxy, before)
        return Outcome(
            seed=seed,
            seconds=seconds,
            backends=len(members),
            faults=Counter(event.fault.value for event in events),
            tally=load.tally,
            retried=int(sum(retried.values())),
            leases_left=left,
            before=before,
            after=footprint(proxy.child.pid),
            log_faults=unexpected(proxy.child.log.read_text(errors="replace")),
            proxy_alive=proxy.child.process.poll() is None,
            recovered=recovered,
            stalls=stalls,
        )


async def _play(events: Sequence[Event], members: Sequence[Member], seconds: float) -> None:
    """Every event at its time; returns when `seconds` have passed and every fault is over."""
    began = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for event in events:
            await asyncio.sleep(max(0.0, began + event.begins - time.monotonic()))
            tasks.create_task(members[event.backend].suffer(event))
        await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))


async def _quiet(proxy: Proxy, before: Footprint) -> None:
    """Idle connections to backends close after some seconds; nothing else should be open."""
    deadline = time.monotonic() + IDLE_CLOSED_S
    while time.monotonic() < deadline:
        if footprint(proxy.child.pid).descriptors <= before.descriptors:
            return
        await asyncio.sleep(0.2)
