"""KV events through the whole proxy: what a decision expects is what the engine then reports, also
of what others sent there, and the mode tells whether it is so."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from prefold.backends.backend import Mode
from prefold.proxy.check import check_backends
from prefold.proxy.serve import Running, running
from prefold.proxy.settings import Backend as BackendSettings
from prefold.proxy.settings import Key, Settings
from tests.support.proxy import BASE, until
from tests.support.telling_engine import ADAPTER, BLOCK, MODEL, TellingEngine, telling_engine
from tests.support.workers import Connection, eventually, workers
from tests.wire.raw_client import post

CHAT = "/v1/chat/completions"
KEY = "pf-a-key"


def body(*texts: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text} for text in texts]
    return {"model": MODEL, "messages": messages} | more


def settings(*engines: TellingEngine, **other: Any) -> Settings:
    backends = tuple(
        BackendSettings(name=f"b{number}", url=engine.url, engine="vllm", kv_events="auto")
        for number, engine in enumerate(engines)
    )
    return dataclasses.replace(BASE, backends=backends, **other)


@asynccontextmanager
async def following(made: Settings) -> AsyncIterator[Running]:
    """A proxy whose backends' events are trusted."""
    async with running(made) as server:
        for backend in server.proxy.pool:
            await server.proxy.monitor.probe(backend)
            await until(lambda: backend.mode is Mode.EVENTS)  # noqa: B023
        yield server


def decided(answer: aiohttp.ClientResponse) -> dict[str, str]:
    told = answer.headers["X-Prefold-Decision"]
    return dict(pair.split("=", 1) for pair in told.split("; "))


async def test_what_is_expected_is_what_is_reported(tmp_path: Path) -> None:
    """Turn by turn, of what never passed this proxy, apart by salt and adapter, and after the
    engine forgot all."""
    turns = ["hello and hello " * 20]
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(telling_engine(tmp_path))
        server = await stack.enter_async_context(following(settings(engine)))
        http = await stack.enter_async_context(aiohttp.ClientSession(server.url))
        index = server.proxy.index

        async def expected(*texts: str, **more: Any) -> int:
            async with http.post(CHAT, json=body(*texts, **more)) as answer:
                told = decided(answer)
            assert told["mode"] == "events"
            await until(lambda: index.size_tokens("b0") == len(engine.held) * BLOCK)
            return int(told["expected_cached_tokens"])

        found = []
        for number in range(3):
            found.append(await expected(*turns))
            turns.append(f"and {number}")
        await engine.compute(engine.tokens(body("in another way " * 20)["messages"]))
        await until(lambda: index.size_tokens("b0") == len(engine.held) * BLOCK)
        found.append(await expected("in another way " * 20))
        found.append(await expected("in another way " * 20, cache_salt="a"))
        found.append(await expected("in another way " * 20, cache_salt="a"))
        found.append(await expected("in another way " * 20, model=ADAPTER))
        found.append(await expected("in another way " * 20, model=ADAPTER))
        assert engine.cached == found
        assert found[0] == found[4] == found[6] == 0
        assert min(found[1], found[2], found[3], found[5], found[7]) > 100

        await engine.reset()
        await until(lambda: index.size_tokens("b0") == 0)
        assert await expected(*turns) == engine.cached[-1] == 0
        exposed = server.proxy.metrics.exposition().decode()
        assert 'prefold_backend_mode{backend="b0",mode="events"} 1.0' in exposed


async def test_tenants_share_nothing_in_either(tmp_path: Path) -> None:
    """Each has a salt of its own, which the engine is sent and its events bear."""
    keys = tuple(
        Key(tenant=tenant, sha256=sha256((KEY + tenant).encode()).hexdigest()) for tenant in "ab"
    )
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(telling_engine(tmp_path))
        server = await stack.enter_async_context(following(settings(engine, keys=keys)))
        http = await stack.enter_async_context(aiohttp.ClientSession(server.url))
        for tenant in "aabb":
            headers = {"Authorization": f"Bearer {KEY}{tenant}"}
            async with http.post(CHAT, json=body("hello " * 99), headers=headers) as answer:
                assert answer.status == 200
            await until(lambda: server.proxy.index.size_tokens("b0") == len(engine.held) * BLOCK)
    assert [cached > 0 for cached in engine.cached] == [False, True, False, True]


async def test_without_events_the_next_best_mode_says_why(tmp_path: Path) -> None:
    """An engine that does not publish is routed to by what was sent there."""
    async with (
        telling_engine(tmp_path, enabled=False) as engine,
        running(settings(engine)) as server,
    ):
        [backend] = server.proxy.pool
        await server.proxy.monitor.probe(backend)
        assert backend.mode is Mode.FEEDBACK
        assert backend.mode_reason.endswith("no KV events: the engine publishes no KV events")
        assert server.proxy.feeds.get("b0") is None


async def test_a_stream_that_is_lost_lowers_the_mode_and_a_guess_takes_over(
    tmp_path: Path,
) -> None:
    """From what is sent from then on; the backend stays in service."""
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(telling_engine(tmp_path))
        server = await stack.enter_async_context(following(settings(engine)))
        http = await stack.enter_async_context(aiohttp.ClientSession(server.url))
        [backend] = server.proxy.pool
        engine.pub.close(linger=0)
        await until(lambda: backend.mode is Mode.FEEDBACK)
        assert backend.mode_reason.endswith("KV events: the event stream is down")
        assert await twice(http) == ("feedback", engine.cached[-1])
    assert engine.cached[-1] > 100


async def twice(http: aiohttp.ClientSession) -> tuple[str, int]:
    """The mode, and what is expected, of a chat that was sent there just before."""
    for _ in range(2):
        async with http.post(CHAT, json=body("hello " * 99)) as answer:
            told = decided(answer)
    return told["mode"], int(told["expected_cached_tokens"])


async def test_an_engine_that_changes_is_followed_for_as_long_as_it_is_of_use(
    tmp_path: Path,
) -> None:
    """A new adapter ends nothing; ids that differ now, or events that are off, end the feed, and a
    guess takes over."""
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(telling_engine(tmp_path))
        server = await stack.enter_async_context(following(settings(engine)))
        http = await stack.enter_async_context(aiohttp.ClientSession(server.url))
        [backend] = server.proxy.pool
        feeds, probe = server.proxy.feeds, server.proxy.monitor.probe
        feed = feeds.get("b0")
        engine.adapters = ["another"]
        await probe(backend)
        assert (backend.mode, feeds.get("b0")) == (Mode.EVENTS, feed)
        assert await twice(http) == ("events", engine.cached[-1])

        engine.enabled, engine.adapters = False, []
        await probe(backend)
        assert (backend.mode, feeds.get("b0")) == (Mode.FEEDBACK, None)
        assert await twice(http) == ("feedback", engine.cached[-1])

        engine.enabled, engine.adapters = True, ["another"]
        await probe(backend)
        await until(lambda: backend.mode is Mode.EVENTS)
        engine.strange, engine.adapters = True, []
        await probe(backend)
        assert (backend.mode, feeds.get("b0")) == (Mode.APPROXIMATE, None)
        mode, expected = await twice(http)
        assert mode == "approximate"
        assert expected > 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
async def test_every_worker_follows_the_stream(tmp_path: Path) -> None:
    """What one placed, and what never passed either of them, both expect."""
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(telling_engine(tmp_path))
        followed = {"engine": "vllm", "kv_events": "auto"}
        made = await stack.enter_async_context(workers([engine.url], backend=followed))
        both = [await made.connect(pid) for pid in made.pids()]

        async def told(connection: Connection, *texts: str) -> tuple[str, int]:
            answer = await connection.ask(post(CHAT, json.dumps(body(*texts)).encode()))
            shown = answer.header("X-Prefold-Decision")
            assert shown is not None, answer
            told = dict(pair.split("=", 1) for pair in shown.split("; "))
            return told["mode"], int(told["expected_cached_tokens"])

        async def in_events_mode() -> bool:
            return {(await told(one, "in"))[0] for one in both} == {"events"}

        await eventually(in_events_mode)
        text = "hello and in hello " * 20
        await engine.compute(engine.tokens(body(text)["messages"]))
        for one in both:

            async def knows(one: Connection = one) -> bool:
                mode, expected = await told(one, text)
                return mode == "events" and expected == engine.cached[-1] > 100

            await eventually(knows)

        async def is_shown() -> bool:
            return [one["mode"] for one in await made.backends()] == ["events"]

        await eventually(is_shown)


async def test_check_says_whether_events_are_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For each backend: from where and how much is held, or where the reason stands."""
    async with AsyncExitStack() as stack:
        told = await stack.enter_async_context(telling_engine(tmp_path / "one"))
        silent = await stack.enter_async_context(telling_engine(tmp_path / "two", enabled=False))
        await told.compute(list(range(3 * BLOCK)))
        made = settings(told, silent, told)
        unasked = dataclasses.replace(made.backends[2], kv_events="")
        assert await check_backends(
            dataclasses.replace(made, backends=(*made.backends[:2], unasked))
        )
    shown = capsys.readouterr().out.splitlines()
    lines = [line.split(maxsplit=2)[2] for line in shown if line.startswith("  KV events")]
    assert lines[0].startswith("followed at tcp://127.0.0.1:")
    assert lines[0].endswith(f": {3 * BLOCK} tokens held")
    assert lines[1:] == ["not followed: see the mode", "not followed: kv_events is not set"]
    assert sum("no KV events: the engine publishes no KV events" in line for line in shown) == 1
