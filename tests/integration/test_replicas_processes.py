"""Replicas as processes of their own, before simulated engines with exact prefix caches: their
rates of hits, as the engines report them. `make bench-replicas` is the long form.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from prefold.proxy.replicas.messages import Stream
from prefold.proxy.replicas.store import Addition, Address, Store, opened
from prefold.proxy.replicas.window import BEGIN, Id
from tests.support.block_engines import block_engines
from tests.support.redis_server import RedisServer, redis_server
from tests.support.replicas import (
    CHAT,
    SERVER,
    Workload,
    body,
    decision,
    figure,
    play,
    replicas,
)
from tests.support.workers import eventually
from tests.wire.process import ProxyProcess
from tests.wire.raw_client import ask, post

ENGINES = 4
BLOCKS = 1500
"""Of each engine. All of them hold the beginnings of all conversations about once."""
RATE = 40_000.0
LOAD = Workload(groups=24, conversations=80, at_once=10, think_s=0.3)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


@asynccontextmanager
async def fleet(
    folder: Path, count: int, redis: RedisServer, **tables: Any
) -> AsyncIterator[list[ProxyProcess]]:
    """Cold engines behind cold replicas."""
    async with AsyncExitStack() as stack:
        engines = block_engines(folder / f"model{count}", ENGINES, blocks=BLOCKS, rate=RATE)
        urls = await stack.enter_async_context(engines)
        shared = {"url": redis.url, "name": f"of-{count}", "timeout_s": 0.5}
        yield await stack.enter_async_context(replicas(count, urls, shared, **tables))


async def test_several_replicas_hit_as_often_as_one(redis: RedisServer, tmp_path: Path) -> None:
    """At least 95 % of what one reaches, with each turn at a replica chosen at random."""
    rates = {}
    for count in (1, 2, 4):
        async with fleet(tmp_path, count, redis) as proxies:
            played = await play(proxies, LOAD)
            assert played.failures == 0
            rates[count] = played.hit_rate

    assert rates[1] > 0.6
    assert rates[2] >= 0.95 * rates[1], rates
    assert rates[4] >= 0.95 * rates[1], rates


async def test_workers_of_a_replica_know_what_other_replicas_place(
    redis: RedisServer, tmp_path: Path
) -> None:
    """One replica has two workers: their parent reads and writes for them."""
    server = {**SERVER, "workers": 2}
    async with fleet(tmp_path, 2, redis, server=server) as proxies:
        texts = [f"{number} " * 400 for number in range(8)]
        for text in texts:
            await ask(proxies[0].url, post(CHAT, body([text, "a question"])))
        asked = post(CHAT, body([texts[0], "another question"]))

        async def known() -> bool:
            told = decision(await ask(proxies[1].url, asked))
            return int(told["expected_cached_tokens"]) > 300

        await eventually(known)
        for text in texts[1:]:
            answer = await ask(proxies[1].url, post(CHAT, body([text, "another question"])))
            assert int(decision(answer)["expected_cached_tokens"]) > 300
        for proxy in proxies:
            assert await figure(proxy, "refused_entries_total") == 0


async def test_a_cluster_takes_and_gives_what_one_server_does(tmp_path: Path) -> None:
    """All keys are in one slot, so one command reads them; what is too old is trimmed."""
    with redis_server(tmp_path, "--cluster-enabled", "yes") as redis:
        with redis.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))

        async def agreed() -> bool:
            with redis.client() as client:
                return bool(client.execute_command("CLUSTER", "INFO").count(b"cluster_state:ok"))

        await eventually(agreed)
        address = Address(
            url=redis.url.replace("redis:", "redis+cluster:"),
            password="",
            ca_file="",
            name="a-fleet",
            timeout_s=2.0,
        )
        async with opened(address) as store:
            assert [await store.last(stream) for stream in Stream] == [BEGIN] * 3
            written = [
                Addition(stream=stream, content=stream.encode() * 2, least=BEGIN, ttl_s=60.0)
                for stream in Stream
            ]
            await store.add(written)
            found = await store.read(dict.fromkeys(Stream, BEGIN))
            assert {(stream, content) for stream, _, content in found} == {
                (one.stream, one.content) for one in written
            }
            last = {stream: entry for stream, entry, _ in found}
            assert last == {stream: await store.last(stream) for stream in Stream}
            assert await store.read(last) == []
            assert await _oldest_after_more(store) > last[Stream.DELTAS]


async def _oldest_after_more(store: Store) -> Id:
    """More entries, the latter half of which make the former superfluous. Trimming is by nodes of
    Redis's own, some entries each."""
    for _ in range(2):
        least = await store.last(Stream.DELTAS)
        big = Addition(stream=Stream.DELTAS, content=b"x" * 5000, least=least, ttl_s=60.0)
        await store.add([big] * 10)
    return (await store.read({Stream.DELTAS: BEGIN}))[0][1]
