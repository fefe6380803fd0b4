"""SIGTERM under load, again and again: nobody loses an answer that could be finished.

What a load balancer does: it asks /ready, and sends nothing new once that says 503. Until the
listener closes, whoever did not notice yet is served; what is in flight then is finished.
"""

from __future__ import annotations

import asyncio
import random
import signal
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from tests.chaos.clients import End, Kind, Load, Tally, connected
from tests.chaos.dialects import Scripted
from tests.chaos.figures import all_up, unexpected
from tests.chaos.fleet import Proxy, ScriptedBackend, start_proxy
from tests.chaos.fleet import backends as running_backends

WORKERS = 12
LATE_REQUESTS = 6
"""In each round, sent when /ready says 503 already."""


@dataclass(slots=True)
class Rounds:
    """Mutable: what came of all rounds."""

    rounds: int = 0
    load: Tally = field(default_factory=Tally)
    late: Tally = field(default_factory=Tally)
    unready: int = 0
    """Rounds in which /ready said 503 before the listener closed."""
    exits: list[int] = field(default_factory=list)
    log_faults: int = 0

    def broken(self) -> list[str]:
        found = []
        for name, tally in (("in flight", self.load), ("on the open listener", self.late)):
            lost = tally.requests.total() - tally.ends[End.COMPLETE]
            if lost:
                found.append(f"{lost} requests {name} were lost by a restart")
        if self.unready != self.rounds:
            found.append(f"/ready was not seen to refuse in {self.rounds - self.unready} rounds")
        if any(self.exits):
            found.append(f"exit statuses {self.exits}")
        if self.log_faults:
            found.append(f"{self.log_faults} tracebacks in the logs of restarts")
        return found

    def as_dict(self) -> dict[str, object]:
        return {
            "rounds": self.rounds,
            "in_flight": self.load.requests.total(),
            "on_the_open_listener": self.late.requests.total(),
            "ends": {str(end): n for end, n in (self.load.ends + self.late.ends).items()},
            "error_statuses": {str(s): n for s, n in self.load.statuses.items()},
        }

    def line(self) -> str:
        lost = sum(
            tally.requests.total() - tally.ends[End.COMPLETE] for tally in (self.load, self.late)
        )
        return (
            f"restarts: {self.rounds}; requests until /ready refused: {self.load.requests.total()},"
            f" after that: {self.late.requests.total()}; lost: {lost}"
        )


async def restarts(folder: Path, *, rounds: int, seed: int) -> Rounds:
    result = Rounds()
    made = [ScriptedBackend(folder, f"r{number}", ["m"]) for number in range(2)]
    with running_backends(folder, [*made]) as members:
        for number in range(rounds):
            urls = [member.url for member in members]
            name = f"restart-{number}"  # a log of its own
            proxy = start_proxy(folder, urls, name=name, lame_duck_s=1.0, drain_s=10.0)
            try:
                await _round(proxy, result, random.Random(seed + number))
            finally:
                proxy.child.stop()
    return result


async def _round(proxy: Proxy, result: Rounds, rng: random.Random) -> None:
    async with (
        aiohttp.ClientSession() as http,
        connected(proxy.url, Scripted(["m"])) as load,
        connected(proxy.url, Scripted(["m"])) as late,
    ):
        load.tally, late.tally = result.load, result.late
        await all_up(http, proxy.url, 2, seconds=30)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for number in range(WORKERS):
                tasks.create_task(_stream_on(load, random.Random(number), stop))
            await asyncio.sleep(rng.uniform(0.2, 1.0))
            proxy.child.signal(signal.SIGTERM)
            if await _refuses(http, proxy.url):
                result.unready += 1
                for number in range(LATE_REQUESTS):
                    tasks.create_task(late.one(Kind.STREAM, random.Random(number)))
            stop.set()
    result.rounds += 1
    result.exits.append(await asyncio.to_thread(proxy.child.process.wait, 20.0))
    result.log_faults += unexpected(proxy.child.log.read_text(errors="replace"))


async def _stream_on(load: Load, rng: random.Random, stop: asyncio.Event) -> None:
    while not stop.is_set():
        await load.one(rng.choice((Kind.STREAM, Kind.STREAM, Kind.WHOLE)), rng)


async def _refuses(http: aiohttp.ClientSession, url: str) -> bool:
    """Whether /ready says 503 before the listener closes."""
    try:
        for _ in range(500):
            async with http.get(f"{url}/ready") as answer:
                if answer.status == 503:
                    return True
            await asyncio.sleep(0.01)
    except aiohttp.ClientError:
        pass
    return False
