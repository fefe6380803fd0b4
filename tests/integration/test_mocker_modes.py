"""The mocker as other engines, and with data-parallel ranks: their events are followed as vLLM's
are, and what they do not report stays unknown."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import numpy as np
import pytest

from prefold.backends.detect import ENGINES
from prefold.backends.engine import PromptReport, Usage
from prefold.backends.kv_events.subscriber import Source
from prefold.prefix_index.prefix import Prefix
from prefold.proxy.kv_events import Feed, engine_seed
from tests.support.mocker import MODEL, Mocker, MockerUnavailable, free_runs, install, mocker
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


def followed(engine: Mocker, rank: int = 0) -> Feed:
    return Feed(
        Source(
            endpoint=next_port(engine.events, rank), replay_endpoint=next_port(engine.replay, rank)
        ),
        block_tokens=BLOCK,
        capacity_tokens=BLOCK * BLOCKS,
        secret=SECRET,
        on_change=lambda problem: None,
    )


def next_port(endpoint: str, by: int) -> str:
    address, _, port = endpoint.rpartition(":")
    return f"{address}:{int(port) + by}"


def cached(feed: Feed, prompt: list[int]) -> int:
    prefix = Prefix.of_tokens(np.array(prompt, dtype=np.uint32), engine_seed(SECRET, None, None))
    return feed.cache.match(prefix).cached_tokens


def whole(prompt: list[int]) -> int:
    return (len(prompt) - 1) // BLOCK * BLOCK


async def ask(session: aiohttp.ClientSession, engine: Mocker, prompt: list[int]) -> bytes:
    """The usage that it reports."""
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 1}
    async with session.post(f"{engine.url}/v1/completions", json=body) as answer:
        usage: Any = (await answer.json())["usage"]
        return msgspec.json.encode(usage)


def prompts(rng: random.Random) -> list[list[int]]:
    """Of several heads, each with an end of its own: more than the cache holds."""
    heads = [[rng.randrange(256) for _ in range(rng.randrange(20, 300))] for _ in range(6)]
    return [
        rng.choice(heads) + [rng.randrange(256) for _ in range(rng.randrange(1, 200))]
        for _ in range(20)
    ]


@pytest.mark.parametrize(("kind", "name"), [("sglang", "sglang"), ("trtllm", "tensorrt-llm")])
async def test_other_engines_are_followed_as_vllm_is(
    python: Path, tmp_path: Path, kind: str, name: str
) -> None:
    """Under eviction. Where cached tokens are reported they are those expected; SGLang, without its
    cache report, leaves them out."""
    expected: list[int] = []
    reports: list[PromptReport] = []
    with mocker(python, tmp_path, block_tokens=BLOCK, blocks=BLOCKS, kind=kind) as engine:
        feed = followed(engine)
        try:
            async with aiohttp.ClientSession() as session:
                await until(lambda: "before" in feed.cache.problem)  # connected, nothing is told
                for prompt in prompts(random.Random(1)):
                    expected.append(cached(feed, prompt))
                    usage = msgspec.json.decode(await ask(session, engine, prompt), type=Usage)
                    reports.append(ENGINES[name].report(usage, None))
                    await until(lambda: cached(feed, prompt) == whole(prompt))  # noqa: B023
            assert BLOCK * BLOCKS // 2 < feed.cache.size_tokens <= BLOCK * BLOCKS
            assert feed.cache.orphans == 0
            assert feed.subscriber.follower.unknown_events == 0
        finally:
            await feed.close()
    assert sum(expected) > 500
    if kind == "sglang":
        assert {report.cached_tokens for report in reports} == {None}
        assert all(report.prompt_tokens for report in reports)
    else:
        assert [report.cached_tokens for report in reports] == expected


async def test_each_rank_tells_of_its_own_cache_on_a_port_of_its_own(
    python: Path, tmp_path: Path
) -> None:
    """A prompt sent twice to one URL is computed twice, and held twice: as many caches as ranks."""
    http, events, replay = free_runs(3, 2)
    with mocker(
        python,
        tmp_path,
        block_tokens=BLOCK,
        blocks=BLOCKS,
        ports=(http, events, replay),
        ranks=2,
    ) as engine:
        feeds = [followed(engine, rank) for rank in range(2)]
        try:
            async with aiohttp.ClientSession() as session:
                await until(lambda: all("before" in feed.cache.problem for feed in feeds))
                one, two = [7] * 100, [8] * 100
                for prompt in (one, one, two, two):
                    usage = msgspec.json.decode(await ask(session, engine, prompt), type=Usage)
                    assert ENGINES["vllm"].report(usage, None).cached_tokens == 0
                await until(lambda: all(feed.cache.size_tokens == 192 for feed in feeds))
                assert [cached(feed, one) for feed in feeds] == [96, 96]
                assert [cached(feed, two) for feed in feeds] == [96, 96]
        finally:
            await asyncio.gather(*(feed.close() for feed in feeds))
