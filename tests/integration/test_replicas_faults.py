"""What Redis does, or does not, hurts no request; and what was told is not lost for good."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from prefold.proxy.settings import Routing
from tests.support.proxy import proxy_before, until
from tests.support.redis_server import RedisServer, redis_server
from tests.support.replica_pair import (
    SOUND,
    chat,
    expected,
    expects,
    figure,
    heard,
    pair,
    shared,
    told,
)
from tests.support.upstream import DONE, END, Script, Step, chunk, delta, head, scripted
from tests.support.workers import eventually

HELD: Script = [
    *(head(), chunk(delta("Hi")), Step.WAIT),
    *(chunk(delta(finish="stop")), chunk(DONE), END),
]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


@asynccontextmanager
async def trouble(redis: RedisServer, kind: str) -> AsyncIterator[None]:
    """Redis as it should not be."""
    if kind == "stands still":
        with redis.standing_still():
            yield
    elif kind == "restarted":
        redis.stop()
        yield
        redis.start()
    elif kind == "full":
        with redis.client() as client:
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("maxmemory", 1)
            yield
            client.config_set("maxmemory", 0)
    else:
        with redis.client() as client:
            client.config_set("maxmemory-policy", "allkeys-random")
            client.config_set("maxmemory", 1)
            yield
            client.config_set("maxmemory", 0)


@pytest.mark.parametrize("kind", ["stands still", "restarted", "full"])
async def test_without_redis_every_request_is_served_and_the_index_heals(
    redis: RedisServer, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """All of the requests begin and end while Redis does not work, so none waits for it. Each
    change is one line of each replica. What was placed meanwhile is told afterwards."""
    caplog.set_level(logging.INFO, "prefold.proxy.replicas")
    async with pair(shared(redis), SOUND) as (both, _):
        before = len(caplog.records)
        async with trouble(redis, kind):
            await until(lambda: all(figure(one, "redis_up") == 0 for one in both))
            for number in range(20):
                text = f"meanwhile {number} " * (50 + number)
                assert (await chat(both[number % 2], text)).status == 200
            assert not heard(*both)
        await until(lambda: all(figure(one, "redis_up") == 1 for one in both), tries=1000)
        await until(lambda: heard(*both))
        assert await told(both[0], both[1], "afterwards " * 100) > 100
        assert all(figure(one, "dropped_messages_total") == 0 for one in both)

    said = [record.getMessage() for record in caplog.records[before:]]
    assert sum("Redis fails" in line for line in said) == 2, said
    assert sum("works again" in line for line in said) == 2, said


async def test_a_redis_that_evicts_takes_nothing_from_those_who_know(redis: RedisServer) -> None:
    """What was told before is known, and what is told afterwards is heard: of entries that were
    evicted before they were read, the ends are not waited for."""
    async with pair(shared(redis), SOUND) as (both, _):
        known = await told(both[0], both[1], "before " * 100)
        assert known > 100
        async with trouble(redis, "evicting"):
            for number in range(10):
                text = f"meanwhile {number} " * (50 + number)
                assert (await chat(both[number % 2], text)).status == 200
        assert await expected(both[1], "before " * 100, "and more") >= known
        await chat(both[0], "afterwards " * 100)
        await eventually(lambda: expects(both[1], 100, "afterwards " * 100))


async def test_what_waits_for_redis_is_bounded_and_what_was_lost_is_counted(
    redis: RedisServer,
) -> None:
    """The oldest placements are lost; the newest are heard when Redis is back."""
    async with pair(shared(redis, buffer_mib=1.0), SOUND) as (both, _):
        with redis.standing_still():
            await until(lambda: figure(both[0], "redis_up") == 0)
            for number in range(40):
                assert (await chat(both[0], f"{number:03}" * 80_000)).status == 200
            await until(lambda: figure(both[0], "dropped_messages_total") > 0)
            assert figure(both[0], "waiting_bytes") < 1.3 * 2**20
        await until(lambda: figure(both[0], "waiting_bytes") == 0, tries=1000)
        await eventually(lambda: expects(both[1], 10_000, "039" * 80_000))
        assert not await expects(both[1], 10_000, "000" * 80_000)


async def test_a_proxy_starts_without_redis_and_finds_it_later(redis: RedisServer) -> None:
    """And serves meanwhile."""
    redis.stop()
    async with (
        scripted(SOUND) as upstream,
        proxy_before([upstream.url], settings=shared(redis)) as one,
    ):
        assert (await chat(one, "early")).status == 200
        assert figure(one, "redis_up") == 0
        redis.start()
        await until(lambda: figure(one, "redis_up") == 1, tries=1000)


async def test_replicas_of_other_secrets_are_told_of_and_not_believed(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """One line says what is wrong."""
    others = dataclasses.replace(shared(redis), routing=Routing(secret="quite another secret"))
    async with (
        scripted(SOUND) as upstream,
        proxy_before([upstream.url], settings=shared(redis)) as one,
        proxy_before([upstream.url], settings=others) as other,
    ):
        await chat(other, *"text " * 200)
        await until(lambda: figure(one, "refused_entries_total") > 1)
        await until(lambda: figure(other, "refused_entries_total") > 0)
        assert figure(one, "others") == 0
        assert await expected(one, *"text " * 200) == 0
    lines = [one.getMessage() for one in caplog.records if "routing.secret" in one.getMessage()]
    assert len(lines) == 2  # of each of them


async def test_a_replica_that_died_leaves_no_load_behind(redis: RedisServer) -> None:
    """What it told expires, with nobody to say that it is no longer true."""
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(scripted(HELD))
        settings = shared(redis)
        alive = await stack.enter_async_context(proxy_before([upstream.url], settings=settings))
        other = await stack.enter_async_context(proxy_before([upstream.url], settings=settings))
        asking = asyncio.create_task(chat(other, "one"))
        backend = alive.proxy.pool["b0"]
        await until(lambda: backend.in_flight == 1)
        with redis.standing_still():
            await until(lambda: backend.in_flight == 0)
        upstream.go_on()
        assert (await asking).status == 200
