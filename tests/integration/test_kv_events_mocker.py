"""A followed mocker: what the cache model expects is what the engine then reports, request for
request, under eviction, for one that joins late, and over a restart."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from prefold.backends.kv_events.subscriber import Source
from prefold.prefix_index.prefix import Prefix
from prefold.proxy.kv_events import Feed, engine_seed
from tests.support.mocker import MODEL, Mocker, MockerUnavailable, free_ports, install, mocker
from tests.support.proxy import until
from tests.support.requirements import skip_or_fail

BLOCK = 16
BLOCKS = 64
SECRET = b"secret"


@pytest.fixture(scope="module")
def python() -> Path:
    try:
        return install()
    except MockerUnavailable as error:
        skip_or_fail(f"the mocker is not here: {error}")


@asynccontextmanager
async def following(engine: Mocker) -> AsyncIterator[Feed]:
    feed = Feed(
        Source(endpoint=engine.events, replay_endpoint=engine.replay),
        block_tokens=BLOCK,
        capacity_tokens=BLOCK * BLOCKS,
        secret=SECRET,
        on_change=lambda problem: None,
    )
    try:
        yield feed
    finally:
        await feed.close()


def prefix_of(prompt: list[int]) -> Prefix:
    return Prefix.of_tokens(np.array(prompt, dtype=np.uint32), engine_seed(SECRET, None, None))


def cached(feed: Feed, prompt: list[int]) -> int:
    return feed.cache.match(prefix_of(prompt)).cached_tokens


async def ask(session: aiohttp.ClientSession, engine: Mocker, prompt: list[int]) -> int:
    """Tokens that the engine says it had cached."""
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 1}
    async with session.post(f"{engine.url}/v1/completions", json=body) as answer:
        usage: dict[str, Any] = (await answer.json())["usage"]
        cached: int = usage["prompt_tokens_details"]["cached_tokens"]
        return cached


def conversations(rng: random.Random) -> list[list[int]]:
    """Prompts of several heads, each with an end of its own: more than the cache holds."""
    heads = [[rng.randrange(256) for _ in range(rng.randrange(20, 300))] for _ in range(6)]
    return [
        rng.choice(heads) + [rng.randrange(256) for _ in range(rng.randrange(1, 200))]
        for _ in range(40)
    ]


async def test_what_is_expected_is_what_the_engine_reports(python: Path, tmp_path: Path) -> None:
    """With evictions, and the same again for one that joins late."""
    expected, reported = [], []
    with mocker(python, tmp_path, block_tokens=BLOCK, blocks=BLOCKS) as engine:
        async with aiohttp.ClientSession() as session, following(engine) as feed:
            await until(lambda: "before" in feed.cache.problem)  # connected, and nothing is told
            for prompt in conversations(random.Random(1)):
                expected.append(cached(feed, prompt))
                reported.append(await ask(session, engine, prompt))
                # Word of its blocks, and of those that went for them, may follow its answer.
                whole = (len(prompt) - 1) // BLOCK * BLOCK
                await until(lambda: cached(feed, prompt) == whole)  # noqa: B023
            async with following(engine) as late:
                await until(lambda: late.cache.problem == "")
                for prompt in conversations(random.Random(1)):
                    assert cached(late, prompt) == cached(feed, prompt)
                assert late.cache.size_tokens == feed.cache.size_tokens > BLOCK * BLOCKS // 2
    assert expected == reported
    assert sum(reported) > 1000
    assert feed.cache.orphans == 0
    assert feed.subscriber.follower.unknown_events == 0


async def test_a_burst_is_one_prefix(python: Path, tmp_path: Path) -> None:
    """Requests in flight see each other before the engine has said a word."""
    prompt = [7] * 100
    with mocker(python, tmp_path, block_tokens=BLOCK, blocks=BLOCKS) as engine:
        async with aiohttp.ClientSession() as session, following(engine) as feed:
            await ask(session, engine, [1] * 20)
            await until(lambda: feed.cache.problem == "")
            placements = [feed.cache.begin(prefix_of(prompt), 0.0) for _ in range(3)]
            assert [placement.cached_tokens for placement in placements] == [0, 96, 96]
            await asyncio.gather(*(ask(session, engine, prompt) for _ in placements))
            await until(lambda: feed.cache.size_tokens >= 16 + 96)
            for placement in placements:
                feed.cache.finish(placement, 1.0, computed=False)
            assert cached(feed, prompt) == 96


async def test_a_restarted_engine_holds_nothing(python: Path, tmp_path: Path) -> None:
    """Nothing is claimed from the moment that it is gone; then what the new one holds is."""
    old, new, other = [7] * 100, [8] * 100, [9] * 100
    ports = free_ports(3)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        with mocker(python, first, block_tokens=BLOCK, blocks=BLOCKS, ports=ports) as engine:
            feed = await stack.enter_async_context(following(engine))
            await ask(session, engine, old)
            await ask(session, engine, other)
            await until(lambda: cached(feed, other) == 96)
            assert cached(feed, old) == 96
        await until(lambda: feed.cache.problem == "the event stream is down")
        assert cached(feed, old) == 0
        with mocker(python, second, block_tokens=BLOCK, blocks=BLOCKS, ports=ports) as engine:
            assert await ask(session, engine, new) == 0
            await until(lambda: cached(feed, new) == 96, tries=2000)
            assert cached(feed, old) == 0
            assert feed.cache.size_tokens == 96
