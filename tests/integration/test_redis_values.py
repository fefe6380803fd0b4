"""Values in a real Redis: one server, a cluster, a user who may do just what is documented."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from prefold.proxy.replicas.store import Address, StoreFailed
from prefold.proxy.replicas.values import Values, values_opened
from tests.support.redis_server import RedisServer, redis_server
from tests.support.workers import eventually

A, B, C, NONE = b"a" * 16, b"b" * 16, b"c" * 16, b"n" * 16


@asynccontextmanager
async def values_of(redis: RedisServer, **members: Any) -> AsyncIterator[Values]:
    given = {"url": redis.url, "password": "", "ca_file": "", "name": "a-fleet", "timeout_s": 2.0}
    async with values_opened(Address(**{**given, **members})) as values:
        yield values


@asynccontextmanager
async def server(folder: Path, *, cluster: bool) -> AsyncIterator[RedisServer]:
    """A cluster is one node with all the slots."""
    with redis_server(folder, *(("--cluster-enabled", "yes") if cluster else ())) as redis:
        if cluster:
            with redis.client() as client:
                client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))

            async def agreed() -> bool:
                with redis.client() as client:
                    return bool(client.execute_command("CLUSTER", "INFO").count(b"_state:ok"))

            await eventually(agreed)
        yield redis


@pytest.mark.parametrize("cluster", [False, True])
async def test_what_was_put_is_found_and_expires(tmp_path: Path, cluster: bool) -> None:
    """In the order of the keys; of what is longer its beginning; of what is no value nothing."""
    async with server(tmp_path, cluster=cluster) as redis:
        url = redis.url.replace("redis:", "redis+cluster:") if cluster else redis.url
        async with values_of(redis, url=url) as values:
            assert await values.put([(A, b"one"), (B, b"x" * 100), (C, b"")], 60.0) == 3
            with redis.client() as client:
                client.rpush("{a-fleet}:kept:" + NONE.hex(), "a list")
                assert 0 < client.pttl("{a-fleet}:kept:" + A.hex()) <= 60_000
            found = await values.get([B, NONE, A, b"0" * 16, C], 10)
            assert found == [b"x" * 10, b"", b"one", b"", b""]
            await values.put([(A, b"other")], 0.001)

            async def expired() -> bool:
                return await values.get([A], 10) == [b""]

            await eventually(expired)


async def test_a_user_needs_no_more_than_is_documented(tmp_path: Path) -> None:
    """GETRANGE and SET on the fleet's keys, and the connection's commands. Without one of them,
    reading fails as a whole; a value that may not be written is a value that Redis did not take."""
    async with server(tmp_path, cluster=False) as redis:
        with redis.client() as client:
            for name, commands in (("both", ("+getrange", "+set")), ("reader", ("+getrange",))):
                rules = ("on", ">pass", "~{a-fleet}:*", "-@all", "+@connection", *commands)
                client.execute_command("ACL", "SETUSER", name, *rules)
        named = redis.url.replace("://", "://{}@")
        async with values_of(redis, url=named.format("both"), password="pass") as values:
            assert await values.put([(A, b"one")], 60.0) == 1
            assert await values.get([A], 10) == [b"one"]
        async with values_of(redis, url=named.format("reader"), password="pass") as values:
            assert await values.put([(A, b"two")], 60.0) == 0
            assert await values.get([A], 10) == [b"one"]
        async with values_of(
            redis, url=named.format("both"), password="pass", name="another"
        ) as values:
            with pytest.raises(StoreFailed, match="NoPermission"):
                await values.get([A], 10)
        async with values_of(redis, url=named.format("both"), password="wrong") as values:
            with pytest.raises(StoreFailed, match="Authentication"):
                await values.get([A], 10)


async def test_a_server_that_is_gone_fails_and_says_no_more(tmp_path: Path) -> None:
    """The kind of error, not its text."""
    async with server(tmp_path, cluster=False) as redis, values_of(redis) as values:
        assert await values.put([(A, b"one")], 60.0) == 1
        redis.stop()
        for _ in range(2):
            with pytest.raises(StoreFailed, match=r"^\w+$"):
                await values.get([A], 10)
            with pytest.raises(StoreFailed, match=r"^\w+$"):
                await values.put([(A, b"a secret")], 60.0)
