"""Data-parallel ranks behind one URL, through the whole proxy: each is a backend with a cache of
its own, and a conversation comes back to the rank that holds it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from prefold.backends.backend import Mode
from prefold.proxy.check import check_backends
from prefold.proxy.ranks import HEADER, with_ranks
from prefold.proxy.serve import Running, running
from prefold.proxy.settings import Backend, Health, Settings
from tests.support.proxy import BASE, until
from tests.support.ranked_engine import RankedEngine, ranked_engine
from tests.support.telling_engine import BLOCK, MODEL, telling_engine
from tests.support.workers import Connection, eventually, workers
from tests.wire.raw_client import post

CHAT = "/v1/chat/completions"


def settings(engine: RankedEngine, **other: Any) -> Settings:
    """`other`: of the backend."""
    backend = Backend(name="dp", url=engine.url, **other)
    return with_ranks(dataclasses.replace(BASE, backends=(backend,)))


@asynccontextmanager
async def before(made: Settings) -> AsyncIterator[tuple[Running, aiohttp.ClientSession]]:
    """A proxy whose backends were probed, and a client of it."""
    async with running(made) as server, aiohttp.ClientSession(server.url) as http:
        for backend in server.proxy.pool:
            await server.proxy.monitor.probe(backend)
        yield server, http


async def ask(http: aiohttp.ClientSession, *texts: str, **headers: str) -> dict[str, str]:
    """What was decided."""
    messages = [{"role": "user", "content": text} for text in texts]
    body = {"model": MODEL, "messages": messages}
    async with http.post(CHAT, json=body, headers=headers) as answer:
        assert answer.status == 200
        told = answer.headers["X-Prefold-Decision"]
    return dict(pair.split("=", 1) for pair in told.split("; "))


@pytest.mark.parametrize("events", ["auto", ""])
async def test_a_conversation_comes_back_to_the_rank_that_holds_it(
    tmp_path: Path, events: str
) -> None:
    """What is expected of the rank is what it reports, with its events and without."""
    async with ranked_engine(tmp_path) as engine:
        made = settings(engine, data_parallel=2, kv_events=events)
        async with before(made) as (server, http):
            mode = Mode.EVENTS if events else Mode.FEEDBACK
            await until(lambda: all(backend.mode is mode for backend in server.proxy.pool))
            talks = [[f"{name} and more " * 20] for name in "abcdefgh"]
            # At once, so that no rank has room for all of them.
            first = await asyncio.gather(*(ask(http, *talk) for talk in talks))
            homes = [told["backend"] for told in first]
            reported = len(engine.ranks[0].cached), len(engine.ranks[1].cached)
            expected: dict[str, list[int]] = {"dp#0": [], "dp#1": []}
            for turn in range(2):
                for talk, home in zip(talks, homes, strict=True):
                    await until(lambda: not events or all_is_told(server, engine))
                    told = await ask(http, *talk, f"turn {turn}")
                    assert told["backend"] == home
                    expected[home].append(int(told["expected_cached_tokens"]))
                    talk.append(f"turn {turn}")
    assert set(homes) == {"dp#0", "dp#1"}
    for rank, name in enumerate(expected):
        assert engine.ranks[rank].cached[reported[rank] :] == expected[name]
        assert min(expected[name]) > 100
    assert all(header == str(rank) for header, rank in engine.went)


def all_is_told(server: Running, engine: RankedEngine) -> bool:
    """Each rank's events have come to its own backend."""
    index = server.proxy.index
    return all(
        index.size_tokens(f"dp#{number}") == len(rank.held) * BLOCK
        for number, rank in enumerate(engine.ranks)
    )


async def test_a_client_does_not_choose_the_rank(tmp_path: Path) -> None:
    """The cache that the index thinks of is the one that the request meets."""
    async with (
        ranked_engine(tmp_path) as engine,
        before(settings(engine, data_parallel=2)) as (_, http),
    ):
        decided = await ask(http, "hello", **{HEADER: "7"})
        [(_, rank)] = engine.went
        assert decided["backend"] == f"dp#{rank}"
        assert rank < 2


async def test_loads_and_sizes_are_the_ranks_own(tmp_path: Path) -> None:
    """And not the server's."""
    async with ranked_engine(tmp_path) as engine:
        engine.running = [3, 1]
        async with before(settings(engine, data_parallel=2)) as (server, _):
            facts = [backend.facts for backend in server.proxy.pool]
    assert [one.running for one in facts if one is not None] == [3, 1]
    assert [one.ranks for one in facts if one is not None] == [2, 2]


async def test_a_rank_too_many_takes_no_requests_and_the_check_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others serve."""
    async with ranked_engine(tmp_path) as engine:
        made = settings(engine, data_parallel=3)
        async with before(made) as (server, http):
            for text in ("one", "two", "three"):
                await ask(http, text * 50)
            assert not server.proxy.pool["dp#2"].health.reachable
        assert not await check_backends(made)
        said = capsys.readouterr().out
    assert "no data-parallel rank 2: the engine has 2" in said
    assert "vllm, data-parallel rank 1" in said
    assert len(engine.went) == 3
    assert 2 not in {rank for _, rank in engine.went}


async def test_a_server_that_is_gone_takes_all_its_ranks_with_it(tmp_path: Path) -> None:
    """A request's one further attempt does not go to a rank of the same server."""
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(telling_engine(tmp_path))
        server_of_two = await stack.enter_async_context(AsyncExitStack())
        engine = await server_of_two.enter_async_context(ranked_engine(tmp_path))
        made = settings(engine, data_parallel=2)
        made = dataclasses.replace(
            made,
            backends=(*made.backends, Backend(name="other", url=other.url)),
            health=Health(interval_s=600.0),
        )
        server, http = await stack.enter_async_context(before(made))
        for number in range(100):
            decided = await ask(http, f"{number} " * 60)
            if decided["backend"] != "other":
                break
        await server_of_two.aclose()
        again = await ask(http, f"{number} " * 60)
        down = [name for name in ("dp#0", "dp#1") if not server.proxy.pool[name].health.reachable]
    assert decided["backend"] != "other"
    assert again["backend"] == "other"
    assert down == ["dp#0", "dp#1"]


async def test_a_server_of_several_caches_that_is_one_backend_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It serves, but its stream of events is not followed, and the check says what to set."""
    async with ranked_engine(tmp_path) as engine:
        made = settings(engine, kv_events="auto")
        async with before(made) as (server, _):
            [backend] = server.proxy.pool
            assert backend.mode is Mode.FEEDBACK
            assert "several data-parallel ranks" in backend.mode_reason
        assert await check_backends(made)
    assert "set data_parallel = 2" in capsys.readouterr().out


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
async def test_what_one_worker_placed_on_a_rank_the_other_finds_there(tmp_path: Path) -> None:
    """Each process makes the same backends of one table of settings."""
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(ranked_engine(tmp_path))
        table = {"name": "dp", "url": engine.url, "data_parallel": 2}
        made = await stack.enter_async_context(workers(["", ""], {"backends": [table]}))
        one, other = [await made.connect(pid) for pid in made.pids()]

        async def told(connection: Connection, text: str) -> tuple[str, int]:
            messages = [{"role": "user", "content": text}]
            body = json.dumps({"model": MODEL, "messages": messages}).encode()
            answer = await connection.ask(post(CHAT, body))
            decision = answer.header("X-Prefold-Decision")
            assert decision is not None, answer
            shown = dict(pair.split("=", 1) for pair in decision.split("; "))
            return shown["backend"], int(shown["expected_cached_tokens"])

        async def both_are_known() -> bool:
            return [one["mode"] for one in await made.backends()] == ["feedback", "feedback"]

        await eventually(both_are_known)
        for text in ("hello and hello ", "in another way ", "and so on and on "):
            home, _ = await told(one, text * 20)

            async def is_found(text: str = text, home: str = home) -> bool:
                backend, expected = await told(other, text * 20)
                rank = engine.ranks[int(home[-1])]
                return backend == home and expected == rank.cached[-1] > 100

            await eventually(is_found)
    assert all(header == str(rank) for header, rank in engine.went)
