"""Several proxies as processes of their own before the same engines, and a workload over them."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.support.block_engines import MODEL
from tests.support.workers import eventually
from tests.wire.process import ProxyProcess, proxy_process, toml
from tests.wire.raw_client import RawAnswer, ask, post, read_answer

CHAT = "/v1/chat/completions"
SECRET = "the-secret-of-this-test"
SERVER = {"port": 0, "admin_port": 0, "lame_duck_s": 0.0, "drain_s": 5.0, "log_requests": False}


@asynccontextmanager
async def replicas(
    count: int,
    urls: Sequence[str],
    redis: Mapping[str, Any] | None,
    **tables: Mapping[str, Any],
) -> AsyncIterator[list[ProxyProcess]]:
    """All of them have probed all backends, and know each other where there is a Redis."""
    settings: dict[str, Any] = {
        "server": SERVER,
        "routing": {"secret": SECRET},
        "health": {"interval_s": 0.5},
        **({} if redis is None else {"redis": redis}),
        **tables,
        "backends": [{"name": f"b{n}", "url": url} for n, url in enumerate(urls)],
    }
    async with AsyncExitStack() as stack:
        # One after the other: to start is the most work that they ever do.
        made = [
            await stack.enter_async_context(proxy_process(toml(settings))) for _ in range(count)
        ]
        for proxy in made:
            await eventually(lambda proxy=proxy: _ready(proxy, len(urls)))
            if redis is not None:
                await eventually(lambda proxy=proxy: _knows(proxy, count - 1))
        yield made


async def _ready(proxy: ProxyProcess, backends: int) -> bool:
    answer = await ask(proxy.url, post("/ready", b"", method="GET"))
    return len(answer.json().get("backends", ())) == backends


async def _knows(proxy: ProxyProcess, others: int) -> bool:
    return await figure(proxy, "others") == others and await figure(proxy, "redis_up") == 1


async def figure(proxy: ProxyProcess, name: str) -> float:
    """One of `prefold_replicas_...`; -1 if it is not shown."""
    return (await proxy.total(f"prefold_replicas_{name}")).get("", -1.0)


def body(texts: Sequence[str]) -> bytes:
    roles = ("system", "user", "assistant")
    messages = [
        {"role": roles[0] if not n else roles[1 + (n + 1) % 2], "content": text}
        for n, text in enumerate(texts)
    ]
    asked = {"model": MODEL, "stream": True, "messages": messages}
    return json.dumps({**asked, "stream_options": {"include_usage": True}}).encode()


def decision(answer: RawAnswer) -> dict[str, str]:
    assert answer.status == 200, answer
    told = answer.header("X-Prefold-Decision")
    assert told is not None
    return dict(pair.split("=", 1) for pair in told.split("; "))


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Conversations that begin with one of `groups` long texts. Each turn goes to a replica chosen
    at random, as a balancer before them would."""

    groups: int = 48
    system_chars: int = 3000
    turns: int = 4
    turn_chars: int = 400
    conversations: int = 160
    at_once: int = 16
    think_s: float = 0.15
    seed: int = 1


@dataclass(slots=True)
class Figures:
    """Mutable. Tokens as the engines reported them."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    failures: int = 0
    seconds: list[float] = field(default_factory=list)

    @property
    def hit_rate(self) -> float:
        return self.cached_tokens / max(self.prompt_tokens, 1)

    def quantile(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


async def play(proxies: Sequence[ProxyProcess], load: Workload) -> Figures:
    """The same requests for one seed, whatever the number of replicas."""
    figures, chance = Figures(), random.Random(load.seed)
    systems = [_words(chance, load.system_chars) for _ in range(load.groups)]
    waiting: Iterator[list[str]] = iter(
        [
            [systems[chance.randrange(load.groups)]]
            + [_words(chance, load.turn_chars) for _ in range(2 * load.turns - 1)]
            for _ in range(load.conversations)
        ]
    )
    clients = [_client(proxies, waiting, load, figures, number) for number in range(load.at_once)]
    await asyncio.gather(*clients)
    return figures


async def _client(
    proxies: Sequence[ProxyProcess],
    waiting: Iterator[list[str]],
    load: Workload,
    figures: Figures,
    number: int,
) -> None:
    chance = random.Random(load.seed * 1000 + number)
    kept: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
    try:
        for texts in waiting:
            for turn in range(load.turns):
                await asyncio.sleep(load.think_s * chance.uniform(0.5, 1.5))
                url = proxies[chance.randrange(len(proxies))].url
                if url not in kept:
                    parts = urlsplit(url)
                    kept[url] = await asyncio.open_connection(parts.hostname, parts.port)
                began = time.perf_counter()
                reader, writer = kept[url]
                writer.write(post(CHAT, body(texts[: 2 * turn + 2])))
                _note(figures, await read_answer(reader), time.perf_counter() - began)
    finally:
        for _, writer in kept.values():
            writer.close()


def _note(figures: Figures, answer: RawAnswer, seconds: float) -> None:
    figures.seconds.append(seconds)
    if answer.status != 200 or b"data: [DONE]" not in answer.body:
        figures.failures += 1
        return
    usage = json.loads(answer.body.split(b"data: ")[-2])["usage"]
    figures.prompt_tokens += usage["prompt_tokens"]
    figures.cached_tokens += usage["prompt_tokens_details"]["cached_tokens"]


def _words(chance: random.Random, chars: int) -> str:
    return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz ", k=chars))
