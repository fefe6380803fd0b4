"""What a proxy's own metrics and log say, read from outside."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass

import aiohttp
from prometheus_client.parser import text_string_to_metric_families


async def metrics(http: aiohttp.ClientSession, admin_url: str, name: str) -> dict[str, float]:
    """Samples of one metric by its label `backend`, summed over other labels."""
    async with http.get(f"{admin_url}/metrics") as answer:
        exposition = await answer.text()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.name == name:
                backend = sample.labels.get("backend", "")
                found[backend] = found.get(backend, 0.0) + sample.value
    return found


async def in_flight(http: aiohttp.ClientSession, admin_url: str, *, seconds: float) -> int:
    """Leases left; waits so long for there to be none."""
    deadline = time.monotonic() + seconds
    while True:
        left = int(sum((await metrics(http, admin_url, "prefold_in_flight_requests")).values()))
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.1)


async def all_up(http: aiohttp.ClientSession, url: str, count: int, *, seconds: float) -> bool:
    """Waits until so many backends are ready."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        async with http.get(f"{url}/ready") as answer:
            if len((await answer.json()).get("backends", ())) >= count:
                return True
        await asyncio.sleep(0.1)
    return False


@dataclass(slots=True)
class Stalls:
    """How long /health took, asked again and again: it does nothing, so its time is that of the
    event loop (and of the machine)."""

    longest_s: float = 0.0
    over_100_ms: int = 0
    asked: int = 0

    async def watch(self, http: aiohttp.ClientSession, url: str, stop: asyncio.Event) -> None:
        while not stop.is_set():
            asked = time.perf_counter()
            async with http.get(f"{url}/health") as answer:
                await answer.read()
            took = time.perf_counter() - asked
            self.asked += 1
            self.over_100_ms += took > 0.1
            self.longest_s = max(self.longest_s, took)
            await asyncio.sleep(0.025)


def unexpected(log: str) -> int:
    """Lines that no proxy should write: tracebacks, and exceptions that nobody foresaw."""
    return len(re.findall(r"Traceback|ERROR.*unexpected|never retrieved|was never awaited", log))
