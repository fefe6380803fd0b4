"""`python -m tests.pictures [CONVERSATIONS]` takes those of docs/dashboard.md: a real proxy with
traffic before two embedded engines, in a real Chromium.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp

from prefold.backends.embedded import ensure_engine
from prefold.backends.engine_process import start_engine
from prefold.proxy.serve import Running
from prefold.proxy.settings import Arm, Compression, Diagnosis, Ledger, Settings
from tests.support.browser import chromium, page_of
from tests.support.prose import prose
from tests.support.proxy import BASE, proxy_before, until

IMAGES = Path(__file__).parents[1] / "docs" / "images"
DESK = {"viewport": {"width": 1100, "height": 1300}}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 1700}, "is_mobile": True}
SHOTS: dict[str, dict[str, Any]] = {
    "dashboard-light": {**DESK, "color_scheme": "light"},
    "dashboard-dark": {**DESK, "color_scheme": "dark"},
    "dashboard-phone": {**PHONE, "color_scheme": "light"},
}
CONVERSATIONS, AT_ONCE, TURNS = 120, 3, 2


def settings(folder: Path) -> Settings:
    return replace(
        BASE,
        arms=(Arm(name="control"), Arm(name="compressed", compression="on")),
        compression=Compression(min_tokens=200, min_chars=200, deadline_s=5.0),
        diagnosis=Diagnosis(divergence=True, divergence_share=1.0),
        ledger=Ledger(path=str(folder / "prefold.ledger")),
    )


async def talk(http: aiohttp.ClientSession, model: str, number: int, dice: random.Random) -> None:
    """A conversation about two of six documents. Every third client puts a number first."""
    stamp = f"Ticket {number}. " if number % 3 == 0 else ""
    system = f"You answer from documents and from nothing else, briefly. {stamp}{prose(99, 12)}"
    documents = [prose(one, dice.randrange(5, 15)) for one in dice.sample(range(6), 2)]
    parts = [{"type": "text", "text": text} for text in (*documents, "What was counted?")]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": system},
        {"role": "user", "content": parts},
    ]
    for _ in range(TURNS):
        body = {"model": model, "stream": True, "max_tokens": 8, "messages": messages}
        async with http.post("/v1/chat/completions", json=body) as answered:
            await answered.read()
        messages += [
            {"role": "assistant", "content": "Crates."},
            {"role": "user", "content": f"And on day {dice.randrange(9)}?"},
        ]


async def traffic(server: Running, conversations: int) -> None:
    model = next(iter(server.proxy.pool.models()))
    numbers = iter(range(conversations))

    async def client(seed: int) -> None:
        dice = random.Random(seed)
        for number in numbers:
            await talk(http, model, number, dice)
            await asyncio.sleep(dice.expovariate(3.0))

    async with aiohttp.ClientSession(server.url) as http, asyncio.TaskGroup() as group:
        for seed in range(AT_ONCE):
            group.create_task(client(seed))


async def take(server: Running) -> None:
    IMAGES.mkdir(exist_ok=True)
    async with chromium() as browser:
        for name, context in SHOTS.items():
            async with page_of(browser, [], **context) as page:
                await page.goto(server.admin_url)
                await page.locator("#ledger").filter(has_text="last").wait_for(timeout=100_000)
                await page.wait_for_timeout(1000)
                await page.screenshot(path=IMAGES / f"{name}.png")


async def main(conversations: int) -> None:
    paths = ensure_engine(progress=lambda what, done, total: None)
    with (
        tempfile.TemporaryDirectory() as folder,
        start_engine(paths) as a,
        start_engine(paths) as b,
    ):
        urls = [a.wait_ready(), b.wait_ready()]
        async with proxy_before(urls, settings=settings(Path(folder))) as server:
            running = asyncio.create_task(traffic(server, conversations * 2))
            try:
                await until(lambda: enough(server, conversations * TURNS), tries=60_000)
                await take(server)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)


def enough(server: Running, wanted: int) -> bool:
    done = sum(tally.requests for kind, tally in server.proxy.books if kind.outcome == "ok")
    return done >= wanted


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else CONVERSATIONS))
