"""Replicas that share what they learn through a real Redis: what one does, the others know.

`test_replicas_faults.py` has a Redis that fails; `test_replicas_processes.py` has processes, and
their rates of hits.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from prefold.proxy.replicas.messages import decode
from prefold.proxy.replicas.seal import Seal
from tests.support.proxy import proxy_before, until
from tests.support.redis_server import RedisServer, redis_server
from tests.support.replica_pair import (
    SOUND,
    chat,
    expected,
    figure,
    heard,
    pair,
    shared,
    told,
)
from tests.support.replicas import SECRET, decision
from tests.support.upstream import DONE, END, Script, Step, chunk, delta, head, scripted, whole
from tests.wire.raw_client import ask, post

HELD: Script = [
    *(head(), chunk(delta("Hi")), Step.WAIT),
    *(chunk(delta(finish="stop")), chunk(DONE), END),
]
RESPONSE_ID = "resp_sentinel_of_an_id"
RESPONSE = whole({"id": RESPONSE_ID, "object": "response", "output": [], "status": "completed"})
SENTINEL = "sentinel of a prompt"
TURNS = [f"{SENTINEL} " * 60]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


async def test_what_one_replica_places_the_other_one_expects(redis: RedisServer) -> None:
    """A conversation's turns go to one backend, whichever replica gets them."""
    async with pair(shared(redis), SOUND, SOUND, SOUND) as (both, upstreams):
        turns = list(TURNS)
        for turn in range(6):
            answer = decision(await chat(both[turn % 2], *turns))
            if turn:
                assert answer["reason"] == "prefix"
                assert int(answer["expected_cached_tokens"]) > 200
            turns.append(f"turn {turn} " * 20)
            await until(lambda: heard(*both))

        assert sorted(len(one.received) for one in upstreams) == [0, 0, 6]


async def test_a_request_of_one_replica_is_load_to_the_other(redis: RedisServer) -> None:
    """Until it ends. What each one shows is its own."""
    async with pair(shared(redis), HELD, HELD) as (both, upstreams):
        first = asyncio.create_task(chat(both[0], "one"))
        await until(lambda: sum(len(one.received) for one in upstreams) == 1)
        [busy] = [n for n, one in enumerate(upstreams) if one.received]
        theirs = both[1].proxy.pool[f"b{busy}"]
        await until(lambda: theirs.in_flight == 1)
        assert theirs.load.here == 0
        second = asyncio.create_task(chat(both[1], "two"))
        await until(lambda: all(one.received for one in upstreams))
        for one in upstreams:
            one.go_on()
        assert [answer.status for answer in await asyncio.gather(first, second)] == [200, 200]
        await until(lambda: theirs.in_flight == 0)


async def test_a_response_is_found_through_any_replica(redis: RedisServer) -> None:
    """Where it was made, although another replica saw it made; also through one that came later."""
    async with pair(shared(redis), RESPONSE, RESPONSE) as (both, upstreams):
        body = json.dumps({"model": "m", "input": "hello"}).encode()
        assert (await ask(both[0].url, post("/v1/responses", body))).status == 200
        [maker] = [n for n, one in enumerate(upstreams) if one.received]
        urls = [one.url for one in upstreams]
        async with proxy_before(urls, settings=shared(redis)) as late:
            for one in (both[1], late):
                await until(lambda one=one: len(one.proxy.pipeline._pins.of_others) == 1)
                wanted = post(f"/v1/responses/{RESPONSE_ID}", b"", method="GET")
                assert (await ask(one.url, wanted)).status == 200
                other = post("/v1/responses/resp_another", b"", method="GET")
                assert (await ask(one.url, other)).status == 404

        assert [one.method for one in upstreams[maker].received] == ["POST", "GET", "GET"]


async def test_a_replica_that_comes_late_is_warm(redis: RedisServer) -> None:
    """It reads what is kept, before or after it knows the backends: what others placed, and what
    its own earlier life did."""
    async with scripted(SOUND) as upstream:
        async with proxy_before([upstream.url], settings=shared(redis)) as first:
            for number in range(20):
                await chat(first, f"{number} " * 300)
            held = first.proxy.index.size_tokens("b0")
        async with proxy_before([upstream.url], settings=shared(redis)) as late:
            await until(lambda: late.proxy.index.size_tokens("b0") == held)
            assert await expected(late, "7 " * 300, "again") > 100


async def test_nothing_but_digests_counters_and_times_is_in_redis(redis: RedisServer) -> None:
    """Everything is read back, as it lies there and opened with the secret: no text, no token id,
    no tenant, no id of a response, no name or address of a backend, no key."""
    async with pair(shared(redis), SOUND, RESPONSE) as (both, upstreams):
        for number in range(4):
            assert (await chat(both[number % 2], *TURNS, f"turn {number}")).status == 200
        body = json.dumps({"model": "m", "input": SENTINEL}).encode()
        for _ in range(4):
            await ask(both[0].url, post("/v1/responses", body))
        await until(lambda: heard(*both))
        await until(lambda: all(figure(one, "waiting_bytes") == 0 for one in both))
        ports = [str(one.port) for one in upstreams]
    kept = everything(redis)
    seal = Seal(SECRET.encode())
    opened = {
        name: [seal.open(name, content)[2] for content in contents]
        for name, contents in kept.items()
    }
    assert {name for name, contents in kept.items() if contents} == {"deltas", "loads", "pins"}
    forbidden = [SENTINEL, SECRET, RESPONSE_ID, "sentinel", "turn 1", "127.0.0.1"]
    names = [b"\xa2b0", b"\xa2b1"]  # as MessagePack has them: digests may hold the letters
    ids = [SENTINEL.encode("utf-32-le")[:16], SENTINEL.encode("utf-16-le")[:16]]
    for contents in (kept, opened):
        for name, entries in contents.items():
            raw = b"".join(entries)
            for text in [*forbidden, *ports]:
                assert text.encode() not in raw, (name, text)
            assert not any(one in raw for one in ids)
            if contents is opened:
                assert not any(one in raw for one in names)
    entries = [entry for of_stream in opened.values() for entry in of_stream]
    said = [message for entry in entries for message in decode(entry)]
    kinds = {type(message).__name__ for message in said}
    assert {"Placed", "Finished", "Pinned", "Loads"} <= kinds
    assert kinds <= {"Placed", "Finished", "Corrected", "Pinned", "Loads", "Emptied", "Forgot"}
    for message in said:
        if (backend := getattr(message, "backend", None)) is not None:
            assert re.fullmatch("[0-9a-f]{16}", backend)
        assert getattr(message, "unit_tokens", 16) == 16


def everything(redis: RedisServer) -> dict[str, list[bytes]]:
    """All keys of the server, each of them one of our streams, and each with a time to live."""
    found: dict[str, list[bytes]] = {}
    with redis.client() as client:
        for key in client.scan_iter():
            name = re.fullmatch(r"\{prefold\}:(\w+)", key.decode())
            assert name is not None
            assert client.pttl(key) > 0
            entries = client.xrange(key)
            assert all(list(fields) == [b"v"] for _, fields in entries)
            found[name[1]] = [fields[b"v"] for _, fields in entries]
    return found


async def test_a_restart_of_a_backend_is_told_once(redis: RedisServer) -> None:
    """Who finds it first tells: the others forget what it held, and keep what was placed since."""
    async with pair(shared(redis), SOUND) as (both, _):
        assert await told(both[0], both[1], "before " * 100) > 100
        await until(lambda: heard(*both))
        both[0].proxy.pool["b0"].health.down()  # its own next probe finds it back
        await until(lambda: not any(one.proxy.index.size_tokens("b0") for one in both))
        assert await told(both[1], both[0], "since then " * 100) > 100
