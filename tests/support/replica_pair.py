"""Two replicas in the test's own process, before scripted upstreams, and what they believe."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from prefold.proxy.serve import Running
from prefold.proxy.settings import Redis, Routing, Settings
from tests.support.proxy import BASE, proxy_before, until
from tests.support.redis_server import RedisServer
from tests.support.replicas import CHAT, SECRET, decision
from tests.support.upstream import DONE, Script, ScriptedUpstream, delta, scripted, stream
from tests.wire.raw_client import RawAnswer, ask, post

SOUND = stream(delta("Hi"), delta(finish="stop"), DONE)


def shared(redis: RedisServer, **more: Any) -> Settings:
    return dataclasses.replace(
        BASE,
        routing=Routing(secret=SECRET),
        redis=Redis(**{"url": redis.url, "timeout_s": 0.3, **more}),
    )


@asynccontextmanager
async def pair(
    settings: Settings, *scripts: Script
) -> AsyncIterator[tuple[list[Running], list[ScriptedUpstream]]]:
    """Two replicas before one backend for each script, which know each other."""
    async with AsyncExitStack() as stack:
        upstreams = [await stack.enter_async_context(scripted(script)) for script in scripts]
        urls = [one.url for one in upstreams]
        both = [
            await stack.enter_async_context(proxy_before(urls, settings=settings)) for _ in range(2)
        ]
        for one in both:
            await until(lambda one=one: figure(one, "others") == 1)
        yield both, upstreams


def figure(one: Running, name: str) -> float:
    page = one.proxy.metrics.exposition().decode()
    found = re.search(rf"^prefold_replicas_{name} (\S+)$", page, re.MULTILINE)
    return float(found[1]) if found is not None else -1.0


async def chat(one: Running, *texts: str) -> RawAnswer:
    messages = [{"role": "user", "content": text} for text in texts]
    body = json.dumps({"model": "m", "stream": True, "messages": messages}).encode()
    return await ask(one.url, post(CHAT, body))


async def expects(one: Running, tokens: int, text: str) -> bool:
    return await expected(one, text, "and more") >= tokens


async def expected(one: Running, *texts: str) -> int:
    """Tokens that this replica believes are cached where it sends them."""
    return int(decision(await chat(one, *texts))["expected_cached_tokens"])


async def told(first: Running, second: Running, text: str) -> int:
    """What `first` places, `second` expects soon after."""
    await chat(first, text)
    await until(lambda: heard(first, second))
    return await expected(second, text, "and more")


def heard(*both: Running) -> bool:
    """What each of them placed, the other one has."""
    sizes = [
        [one.proxy.index.size_tokens(backend.name) for backend in one.proxy.pool] for one in both
    ]
    return sizes[0] == sizes[1]
