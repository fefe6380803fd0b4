"""Compressed segments shared through a real Redis, and what comes of each way in which it fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from prefold.proxy.compression.sealed_kept import STREAM
from prefold.proxy.compression.shared_segments import SharedSegments
from prefold.proxy.compression.switch import HEADER
from prefold.proxy.replicas.seal import Seal
from prefold.proxy.serve import Running
from prefold.proxy.settings import Compression, CompressionMode, Settings
from tests.support.prose import prose
from tests.support.proxy import proxy_before, until
from tests.support.redis_server import RedisServer, redis_server
from tests.support.replica_pair import shared
from tests.support.replicas import SECRET
from tests.support.requirements import skip_or_fail
from tests.support.upstream import ScriptedUpstream, scripted, whole
from tests.support.workers import Connection, eventually, workers
from tests.wire.raw_client import post

PATH = "/v1/chat/completions"
ANSWER = whole({"id": "a", "choices": [{"message": {"role": "assistant", "content": "Yes."}}]})
RULES = Compression(mode="on", min_tokens=100, min_chars=200, deadline_s=10.0)
DOCUMENTS = (prose(1, 30), prose(2, 30))


@pytest.fixture(autouse=True)
def _wordfreq() -> None:
    try:
        import wordfreq  # noqa: F401
    except ImportError:
        skip_or_fail("needs wordfreq: pip install 'prefold[compression-lexical]'")


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


@pytest.fixture
async def upstream() -> Any:
    async with scripted(ANSWER) as made:
        yield made


def settings(redis: RedisServer, mode: CompressionMode = "on", **more: Any) -> Settings:
    """Requests wait for Redis as long as it takes here, unless that is what is tested."""
    given = shared(redis, **{"segments_wait_s": 5.0, **more})
    return replace(given, compression=replace(RULES, mode=mode))


async def proxy(stack: AsyncExitStack, upstream: ScriptedUpstream, given: Settings) -> Running:
    """One whose compressor is ready, and which has reached Redis."""
    made = await stack.enter_async_context(proxy_before([upstream.url], settings=given))
    assert made.proxy.compression is not None
    pool = made.proxy.compression.pool
    await until(lambda: pool.up > 0, tries=3000)
    await until(lambda: segments(made).breaker.closed)
    return made


def segments(server: Running) -> SharedSegments:
    assert server.proxy.compression is not None
    assert server.proxy.compression.shared is not None
    return server.proxy.compression.shared


def compressor_s(server: Running) -> float:
    assert server.proxy.compression is not None
    return server.proxy.compression.pool.busy_s


def sample(server: Running, name: str, result: str) -> float:
    found = f'prefold_compression_redis_{name}_total{{result="{result}"}} '
    lines = server.proxy.metrics.exposition().decode().splitlines()
    [line] = [line for line in lines if line.startswith(found)]
    return float(line.removeprefix(found))


def kept_keys(client: Any) -> list[bytes]:
    return [key for key in client.keys() if b":kept:" in key]  # noqa: SIM118 - no mapping


def body_of(*documents: str) -> dict[str, Any]:
    parts = [{"type": "text", "text": text} for text in (*documents, "What did he count?")]
    return {"model": "m", "messages": [{"role": "user", "content": parts}]}


async def ask(server: Running, *documents: str) -> str:
    """What the header says."""
    async with (
        aiohttp.ClientSession(server.url) as http,
        http.post(PATH, json=body_of(*documents)) as answer,
    ):
        assert answer.status == 200, await answer.text()
        return answer.headers.get(HEADER, "")


async def test_what_one_replica_compressed_another_one_need_not(
    redis: RedisServer, upstream: ScriptedUpstream
) -> None:
    """The same bytes go out, its compressor does nothing, and it has them in memory from then on;
    also one that starts later, when no other one lives."""
    async with AsyncExitStack() as stack:
        one = await proxy(stack, upstream, settings(redis))
        two = await proxy(stack, upstream, settings(redis))
        assert "form=compressed" in await ask(one, *DOCUMENTS)
        await until(lambda: sample(one, "writes", "written") == 2)
        assert "form=compressed" in await ask(two, *DOCUMENTS)
        assert (sample(one, "segments", "miss"), sample(two, "segments", "hit")) == (2, 2)
        assert "form=compressed" in await ask(two, *reversed(DOCUMENTS))
        assert sample(two, "segments", "hit") == 2
        assert compressor_s(one) > compressor_s(two) == 0.0
    async with AsyncExitStack() as stack:
        later = await proxy(stack, upstream, settings(redis))
        assert "form=compressed" in await ask(later, *DOCUMENTS)
        assert compressor_s(later) == 0.0
    first, second, turned, third = [one.body for one in upstream.received]
    assert first == second == third
    assert texts(turned)[:2] == texts(first)[1::-1]
    assert len(texts(first)[0]) < 0.7 * len(DOCUMENTS[0])


def texts(body: bytes) -> list[str]:
    return [part["text"] for part in json.loads(body)["messages"][0]["content"]]


async def test_the_gate_knows_what_others_compressed(
    redis: RedisServer, upstream: ScriptedUpstream
) -> None:
    """Where the compressor is believed to be too slow, what Redis holds is sent all the same."""
    async with AsyncExitStack() as stack:
        one = await proxy(stack, upstream, settings(redis))
        await ask(one, *DOCUMENTS)
        await until(lambda: sample(one, "writes", "written") == 2)
        two = await proxy(stack, upstream, settings(redis, "auto"))
        assert two.proxy.compression is not None
        two.proxy.compression.pool.speed.observe(1, 1e9)
        told = await ask(two, *reversed(DOCUMENTS))
        assert "form=compressed" in told
        assert "reason=pays" in told
        assert "form=original" in await ask(two, prose(3, 30))


async def test_nothing_in_redis_is_text(redis: RedisServer, upstream: ScriptedUpstream) -> None:
    """All of it is read back, as it lies there and opened with the secret: no word of a document,
    but a digest and offsets; and every key expires."""
    async with AsyncExitStack() as stack:
        one = await proxy(stack, upstream, settings(redis))
        await ask(one, *DOCUMENTS)
        await until(lambda: sample(one, "writes", "written") == 2)
        client = redis.client()
        held = {key: client.dump(key) for key in client.keys()}  # noqa: SIM118 - no mapping
        kept = kept_keys(client)
        assert len(kept) == 2
        everything = b"".join([*held, *held.values()]).lower().replace(b"}:kept:", b"")
        words = {word for text in DOCUMENTS for word in text.lower().split() if len(word) > 4}
        assert len(words) > 30
        assert not [word for word in words if word.encode() in everything]
        for key in kept:
            _, _, plain = Seal(SECRET.encode()).open(STREAM, client.get(key))
            version, digest, length, steps = msgspec.msgpack.decode(plain)
            assert (version, digest.hex()) == (1, key.decode().rpartition(":")[2])
            assert length in map(len, DOCUMENTS)
            assert {type(step) for step in steps} == {int}
            assert not [word for word in words if word.encode() in plain]
        assert all(0 < client.ttl(key) <= 86400 for key in kept)
        assert sum(map(len, held.values())) < 0.7 * sum(map(len, DOCUMENTS))


async def test_what_is_no_value_of_ours_is_as_if_it_were_not_there(
    redis: RedisServer, upstream: ScriptedUpstream
) -> None:
    """It is compressed here, and told again, which mends it."""
    documents = [prose(number, 30) for number in range(6)]
    async with AsyncExitStack() as stack:
        one = await proxy(stack, upstream, settings(redis))
        await ask(one, *documents)
        await until(lambda: sample(one, "writes", "written") == 6)
        client = redis.client()
        garbage, huge, of_another, empty, a_list, sound = kept_keys(client)
        client.set(garbage, b"\x94garbage")
        client.set(huge, b"x" * 3_000_000)
        client.set(of_another, client.get(sound))
        client.set(empty, b"")
        client.delete(a_list)
        client.rpush(a_list, "a", "b")

        two = await proxy(stack, upstream, settings(redis))
        assert "form=compressed" in await ask(two, *documents)
        results = {name: sample(two, "segments", name) for name in ("hit", "refused", "miss")}
        assert results == {"hit": 1, "refused": 3, "miss": 2}
        await until(lambda: sample(two, "writes", "written") == 5)
        three = await proxy(stack, upstream, settings(redis))
        assert "form=compressed" in await ask(three, *documents)
        assert compressor_s(three) == 0.0
        assert len({one.body for one in upstream.received}) == 1


async def test_a_redis_that_is_killed_is_done_without(
    redis: RedisServer, upstream: ScriptedUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    """Each request is compressed as without it, and one line says so; when it is back, it is used
    again."""
    async with AsyncExitStack() as stack:
        one = await proxy(stack, upstream, settings(redis))
        redis.stop()
        for number in range(3):
            assert "form=compressed" in await ask(one, prose(10 + number, 30))
        assert not segments(one).breaker.closed
        assert sample(one, "segments", "unasked") == 3
        redis.start()
        await until(lambda: segments(one).breaker.closed, tries=1500)
        await ask(one, prose(20, 30))
        await until(lambda: sample(one, "writes", "written") > 0)
    assert caplog.text.count("compressing what is not in memory until it is back") == 1


async def test_a_redis_that_stands_still_is_waited_for_once(
    redis: RedisServer, upstream: ScriptedUpstream
) -> None:
    """The first request waits as long as it may; those after it do not ask until it answers."""
    async with AsyncExitStack() as stack:
        given = settings(redis, segments_wait_s=0.01, timeout_s=0.5)
        one = await proxy(stack, upstream, given)
        with redis.standing_still():
            for number in range(4):
                assert "form=compressed" in await ask(one, prose(10 + number, 30))
            assert sample(one, "segments", "late") == 1
            assert sample(one, "segments", "unasked") >= 3
        await until(lambda: segments(one).breaker.closed, tries=1500)


async def test_a_redis_that_is_full_is_still_read(
    redis: RedisServer, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """What it refuses is counted, and compressed again by the next one."""
    async with AsyncExitStack() as stack:
        one = await proxy(stack, upstream, settings(redis))
        await ask(one, DOCUMENTS[0])
        await until(lambda: sample(one, "writes", "written") == 1)
        redis.client().config_set("maxmemory", "1")
        await ask(one, DOCUMENTS[1])
        await until(lambda: sample(one, "writes", "unwritten") == 1)
        two = await proxy(stack, upstream, settings(redis))
        await ask(two, *DOCUMENTS)
        assert [sample(two, "segments", result) for result in ("hit", "miss")] == [1, 1]
        assert compressor_s(two) > 0.0


async def test_it_writes_no_more_than_it_may(
    redis: RedisServer, upstream: ScriptedUpstream
) -> None:
    """And shares nothing at all where that is nothing."""
    async with AsyncExitStack() as stack:
        one = await proxy(stack, upstream, settings(redis, segments_mib=1e-3))
        await ask(one, *DOCUMENTS, prose(3, 30), prose(4, 30))
        await until(lambda: sample(one, "writes", "unwritten") > 0)
        client = redis.client()
        kept = kept_keys(client)
        assert sum(client.strlen(key) for key in kept) <= 1e-3 * 2**20
        assert len(kept) == sample(one, "writes", "written")
    none = settings(redis, segments_mib=0.0)
    async with proxy_before([upstream.url], settings=none) as server:
        assert server.proxy.compression is not None
        assert server.proxy.compression.shared is None


async def test_workers_share_what_they_compressed(
    redis: RedisServer, upstream: ScriptedUpstream
) -> None:
    """Each of them speaks to Redis itself: a document that both of them see is told once."""
    tables = {
        "compression": {"mode": "on", "min_tokens": 100, "min_chars": 200, "deadline_s": 10.0},
        "routing": {"secret": SECRET},
        "redis": {"url": redis.url, "segments_wait_s": 5.0},
    }
    client = redis.client()

    def told() -> int:
        return int(client.info("commandstats").get("cmdstat_set", {}).get("calls", 0))

    async with workers([upstream.url], tables) as made:
        both = [await made.connect(pid) for pid in made.pids()]

        async def form(worker: Connection, number: int) -> str:
            answer = await worker.ask(post(PATH, json.dumps(body_of(prose(number, 30))).encode()))
            assert answer.status == 200
            return answer.header(HEADER) or ""

        async def ready() -> bool:
            """The compressors start beside the workers."""
            number = len(upstream.received)
            forms = [await form(worker, 1000 + number + n) for n, worker in enumerate(both)]
            return all("form=compressed" in one for one in forms)

        await eventually(ready, tries=1000)
        await until(lambda: len(kept_keys(client)) == told() >= 2)
        before = told()
        await form(both[0], 1)
        await until(lambda: told() == before + 1)
        assert "form=compressed" in await form(both[1], 1)
        await form(both[1], 2)
        await until(lambda: len(kept_keys(client)) == before + 2)
        assert told() == before + 2
        assert upstream.received[-3].body == upstream.received[-2].body
