"""`prefold serve --workers 2`: real processes, which share one port, and what they know.

Each request goes to a worker that the test names, over a connection that is known to be that
worker's.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.support.proxy import until
from tests.support.upstream import (
    DONE,
    END,
    Script,
    ScriptedUpstream,
    Step,
    chunk,
    delta,
    head,
    scripted,
    stream,
    whole,
)
from tests.support.workers import Connection, WorkersProcess, eventually, workers
from tests.wire.raw_client import BodyEnd, RawAnswer, ask, post

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")

CHAT = "/v1/chat/completions"
SOUND = stream(delta("Hi"), delta(finish="stop"), DONE)
ENDING = [chunk(delta(finish="stop")), chunk(DONE), END]
HELD: Script = [head(), chunk(delta("Hi")), Step.WAIT, *ENDING]
ERROR = whole({"error": {"message": "broken"}}, 500)
TRAVEL_S = 0.05
"""Longer than what one worker tells takes to the others: some milliseconds."""
KEY, SLOW_KEY = "pf-a-key", "pf-a-slow-key"


def chat(*texts: str, key: str | None = None) -> bytes:
    messages = [{"role": "user", "content": text} for text in texts]
    body = json.dumps({"model": "m", "stream": True, "messages": messages}).encode()
    return post(CHAT, body, {"Authorization": f"Bearer {key}"} if key else None)


def decision(answer: RawAnswer) -> dict[str, str]:
    assert answer.status == 200, answer
    told = answer.header("X-Prefold-Decision")
    assert told is not None
    return dict(pair.split("=", 1) for pair in told.split("; "))


@asynccontextmanager
async def scene(
    *scripts: Script,
    tables: dict[str, Any] | None = None,
    backend: dict[str, Any] | None = None,
) -> AsyncIterator[tuple[WorkersProcess, list[ScriptedUpstream], list[Connection]]]:
    """One backend for each script, and a connection to each of two workers."""
    async with AsyncExitStack() as stack:
        upstreams = [await stack.enter_async_context(scripted(script)) for script in scripts]
        urls = [one.url for one in upstreams]
        made = await stack.enter_async_context(workers(urls, tables, backend))
        yield made, upstreams, [await made.connect(pid) for pid in made.pids()]


async def test_a_conversation_stays_at_its_backend_whichever_worker_gets_its_turns() -> None:
    """What one worker placed, the other one expects to find there."""
    async with scene(SOUND, SOUND) as (_, _, both):
        for conversation in range(6):
            turns = [f"conversation {conversation}: " + "some words " * 100]
            first = decision(await both[conversation % 2].ask(chat(*turns)))
            for turn in range(4):
                await asyncio.sleep(TRAVEL_S)
                turns.append(f"turn {turn} " * 20)
                told = decision(await both[(conversation + turn + 1) % 2].ask(chat(*turns)))
                assert (told["backend"], told["reason"]) == (first["backend"], "prefix")
                assert int(told["expected_cached_tokens"]) > 200


async def test_a_request_of_one_worker_is_load_to_the_other() -> None:
    """From the moment it was leased, and until it has ended."""
    async with scene(HELD, HELD) as (made, upstreams, both):
        asking = [asyncio.create_task(both[0].ask(chat("one")))]
        await until(lambda: sum(len(one.received) for one in upstreams) == 1)
        asking.append(asyncio.create_task(both[1].ask(chat("two"))))
        await until(lambda: sum(len(one.received) for one in upstreams) == 2)

        assert [len(one.received) for one in upstreams] == [1, 1]
        assert await made.in_flight() == 2
        for one in upstreams:
            one.go_on()
        assert {decision(answer)["backend"] for answer in await asyncio.gather(*asking)} == {
            "b0",
            "b1",
        }
        assert await made.in_flight() == 0


async def test_places_are_those_of_all_workers_and_go_to_the_longest_wait() -> None:
    """One place: both workers' requests take turns in the order in which they came."""
    async with scene([Step.WAIT, *SOUND], backend={"max_in_flight": 1}) as (
        made,
        [upstream],
        both,
    ):
        more = [await made.connect(pid) for pid in made.pids()]
        asking = []
        for number, connection in enumerate([both[0], both[1], more[0], more[1]]):
            asking.append(asyncio.create_task(connection.ask(chat(f"number {number}"))))
            if number == 0:
                await until(lambda: len(upstream.received) == 1)
            else:
                await _waiting(made, number)
        assert len(upstream.received) == 1
        upstream.go_on()

        assert [decision(answer)["backend"] for answer in await asyncio.gather(*asking)]
        bodies = [json.loads(one.body)["messages"][0]["content"] for one in upstream.received]
        assert bodies == [f"number {number}" for number in range(4)]


async def _waiting(made: WorkersProcess, count: int) -> None:
    async def reached() -> bool:
        return (await made.proxy.total("prefold_waiting_requests"))[""] == count

    await eventually(reached)


async def test_every_request_of_every_worker_is_counted_once() -> None:
    """By the parent, in its metrics and its report; and nothing is in flight after a burst."""
    async with scene(SOUND, SOUND) as (made, upstreams, _):
        answers = await asyncio.gather(
            *[ask(made.proxy.url, chat(f"burst {number}")) for number in range(100)]
        )
        assert {answer.status for answer in answers} == {200}
        assert sum(len(one.received) for one in upstreams) == 100

        async def all_counted() -> bool:
            return await made.counted() == 100

        await eventually(all_counted)
        assert await made.proxy.outcomes() == {"ok": 100}
        assert await made.in_flight() == 0
        assert await made.proxy.total("prefold_lost_records_total") == {"": 0}


async def test_a_worker_that_is_killed_comes_back_and_leaves_nothing_behind() -> None:
    """Its load is gone with it, requests of the other one see nothing, and the new one knows what
    the others know."""
    async with scene(SOUND, SOUND) as (made, upstreams, both):
        victim, survivor = made.pids()
        turns = ["a conversation " * 100]
        first = decision(await both[0].ask(chat(*turns)))
        for one in upstreams:
            one.scripts = [HELD]
        held = [asyncio.create_task(both[0].ask(chat("held")))]
        await until(lambda: sum(len(one.received) for one in upstreams) == 2)
        await eventually(lambda: _is(made.in_flight, 1))
        for one in upstreams:
            one.scripts = [SOUND]

        stop = asyncio.Event()
        statuses = asyncio.create_task(_load(both[1], stop))
        os.kill(victim, signal.SIGKILL)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            assert (await held[0]).end is not BodyEnd.ABORTED or _raise()
        await eventually(lambda: _is(made.in_flight, 0, at_most=1))
        await until(lambda: len(made.pids()) == 2)
        stop.set()
        seen = await statuses
        assert set(seen) == {200}
        await made.until_ready(2)
        assert await made.in_flight() == 0

        [born] = [pid for pid in made.pids() if pid != survivor]
        fresh = await made.connect(born)
        await asyncio.sleep(TRAVEL_S)
        told = decision(await fresh.ask(chat(*turns, "and on")))
        assert told["backend"] == first["backend"]
        assert int(told["expected_cached_tokens"]) > 200
        assert "another in" in "".join(made.proxy.said)


def _raise() -> bool:
    raise ConnectionResetError


async def _is(number: Any, wanted: int, at_most: int | None = None) -> bool:
    found = await number()
    return bool(found == wanted if at_most is None else found <= at_most)


async def _load(connection: Connection, stop: asyncio.Event) -> list[int]:
    statuses = list[int]()
    while not stop.is_set():
        statuses.append((await connection.ask(chat(f"load {len(statuses)}"))).status)
    return statuses


async def test_a_worker_that_comes_back_turns_nobody_away() -> None:
    """It listens when it knows the backends: new connections find one that serves at any time."""
    async with scene(SOUND, SOUND) as (made, _, _):
        victim, survivor = made.pids()
        os.kill(victim, signal.SIGKILL)
        await until(lambda: not _lives(victim))
        await until(lambda: len(made.pids()) == 2)
        [born] = [pid for pid in made.pids() if pid != survivor]
        reached = asyncio.create_task(made.connect(born))
        statuses = list[int]()
        while not reached.done():
            statuses.append((await ask(made.proxy.url, chat(f"new {len(statuses)}"))).status)
        fresh = await reached
        statuses += [(await fresh.ask(chat(f"late {n}"))).status for n in range(20)]

    assert len(statuses) > 20
    assert set(statuses) == {200}


async def test_sigterm_lets_the_streams_of_all_workers_finish() -> None:
    """New connections are refused meanwhile, and the exit is a proper one."""
    async with scene(HELD, HELD) as (made, upstreams, both):
        asking = [asyncio.create_task(one.ask(chat("held", str(n)))) for n, one in enumerate(both)]
        await until(lambda: sum(len(one.received) for one in upstreams) == 2)
        made.proxy.process.send_signal(signal.SIGTERM)

        async def refused() -> bool:
            try:
                await ask(made.proxy.url, post("/health", b"", method="GET"))
            except ConnectionError:
                return True
            return False

        await eventually(refused)
        for one in upstreams:
            one.go_on()
        for answer in await asyncio.gather(*asking):
            assert answer.end is BodyEnd.WHOLE
            assert answer.body.endswith(DONE)
        assert await asyncio.wait_for(made.proxy.process.wait(), 30) == 0


async def test_backends_come_and_go_in_all_workers() -> None:
    """Added, and removed, at the parent's admin port."""
    async with scene(SOUND) as (made, _, both), scripted(SOUND, model="other") as late:
        other = json.dumps({"model": "other", "stream": True, "messages": [{"role": "user"}]})
        for connection in both:
            assert (await connection.ask(post(CHAT, other.encode()))).status == 404
        added = await made.admin(
            "POST", "/backends", json.dumps({"name": "late", "url": late.url}).encode()
        )
        assert added.status == 201
        for connection in both:
            await eventually(partial(_status, connection, post(CHAT, other.encode()), 200))
        assert (await made.admin("DELETE", "/backends/late")).status == 200
        for connection in both:
            await eventually(partial(_status, connection, post(CHAT, other.encode()), 404))


async def _status(connection: Connection, request: bytes, wanted: int) -> bool:
    return (await connection.ask(request)).status == wanted


async def test_a_keys_limits_hold_for_all_workers_together() -> None:
    """So many at once, and so many a minute."""
    keys = [
        {"tenant": "t", "sha256": sha256(key.encode()).hexdigest()} | limit
        for key, limit in ((KEY, {"parallel": 1}), (SLOW_KEY, {"requests_per_minute": 4}))
    ]
    async with scene(HELD, tables={"keys": keys}) as (_, [upstream], both):
        asking = asyncio.create_task(both[0].ask(chat("held", key=KEY)))
        await until(lambda: len(upstream.received) == 1)
        assert (await both[1].ask(chat("too many at once", key=KEY))).status == 429
        upstream.go_on()
        assert (await asking).status == 200
        upstream.scripts = [SOUND]
        statuses = [(await both[n % 2].ask(chat(str(n), key=SLOW_KEY))).status for n in range(6)]

    assert statuses == [200] * 4 + [429] * 2


async def test_without_its_parent_a_worker_serves_and_heals_when_it_is_back() -> None:
    """The parent stands still; afterwards all is counted, and the workers know of each other."""
    async with scene(SOUND, SOUND) as (made, _, both):
        made.proxy.process.send_signal(signal.SIGSTOP)
        try:
            for number in range(10):
                assert (await both[number % 2].ask(chat(f"alone {number}"))).status == 200
        finally:
            made.proxy.process.send_signal(signal.SIGCONT)
        await eventually(lambda: _is(made.counted, 10))
        turns = ["together " * 200]
        first = decision(await both[0].ask(chat(*turns)))
        await asyncio.sleep(TRAVEL_S)
        told = decision(await both[1].ask(chat(*turns, "again")))

        assert (told["backend"], told["reason"]) == (first["backend"], "prefix")


async def test_what_one_worker_sees_fail_no_worker_is_sent_to() -> None:
    """Three failures in one of them set a backend aside for all."""
    async with scene(ERROR, SOUND) as (made, [bad, _], both):
        for number in range(40):
            if len(bad.received) == 3:
                break
            await both[0].ask(chat(f"number {number}"))
        assert len(bad.received) == 3
        await asyncio.sleep(TRAVEL_S)
        for number in range(10):
            assert decision(await both[1].ask(chat(f"other {number}")))["backend"] == "b1"
        assert (await made.proxy.states())["b0"] == "ejected"


async def test_a_response_is_found_through_any_worker() -> None:
    """Where it was made, although another worker saw it made."""
    made_one = whole({"id": "resp_1", "object": "response", "output": [], "status": "completed"})
    async with scene(made_one, made_one) as (_, upstreams, both):
        body = json.dumps({"model": "m", "input": "hello"}).encode()
        assert (await both[0].ask(post("/v1/responses", body))).status == 200
        [maker] = [n for n, one in enumerate(upstreams) if one.received]
        await asyncio.sleep(TRAVEL_S)
        found = await both[1].ask(post("/v1/responses/resp_1", b"", method="GET"))

        assert found.status == 200
        assert [one.path for one in upstreams[maker].received][-1] == "/v1/responses/resp_1"


async def test_workers_end_with_a_parent_that_is_killed() -> None:
    """Nothing is left to serve an old state of affairs."""
    async with scene(SOUND) as (made, _, _):
        pids = made.pids()
        made.proxy.process.kill()
        await until(lambda: not any(_lives(pid) for pid in pids))


async def test_no_key_is_on_a_workers_command_line() -> None:
    """Everybody on the machine can read those; settings go another way."""
    backend = {"api_key": "sentinel-of-a-backend"}
    tables = {"routing": {"secret": "sentinel-of-the-index"}}
    async with scene(SOUND, tables=tables, backend=backend) as (made, [upstream], both):
        assert (await both[0].ask(chat("hello"))).status == 200
        assert not any(b"sentinel" in _command_line(pid) for pid in made.pids())

    assert upstream.received[0].headers["authorization"] == "Bearer sentinel-of-a-backend"
    assert "sentinel" not in "".join(made.proxy.said)


def _command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


async def test_sighup_reaches_all_workers() -> None:
    """The settings are read again by the parent, once."""
    async with scripted(SOUND, model="other") as late, scene(SOUND) as (made, _, both):
        body = json.dumps({"model": "other", "stream": True, "messages": [{"role": "user"}]})
        for connection in both:
            assert (await connection.ask(post(CHAT, body.encode()))).status == 404
        with made.config.open("a") as config:
            config.write(f'\n[[backends]]\nurl = "{late.url}"\n')
        made.proxy.process.send_signal(signal.SIGHUP)
        for connection in both:
            await eventually(partial(_status, connection, post(CHAT, body.encode()), 200))


@pytest.mark.engine
async def test_real_engines_report_what_the_workers_expect(
    two_engine_urls: tuple[str, str],
) -> None:
    """Exact tokens in each worker; the cached tokens that one placed are there for the other."""
    async with workers(two_engine_urls) as made:
        both = [await made.connect(pid) for pid in made.pids()]
        turns = ["Tell me about tea. " * 40]
        answers = []
        for turn in range(4):
            messages = [{"role": "user", "content": text} for text in turns]
            asked = {"model": "smollm2", "messages": messages, "max_tokens": 4}
            raw = json.dumps(asked).encode()
            answers.append(await both[turn % 2].ask(post(CHAT, raw)))
            await asyncio.sleep(TRAVEL_S)
            turns.append(f"And number {turn}?")

    told = [decision(answer) for answer in answers]
    assert {one["mode"] for one in told} == {"feedback"}
    assert len({one["backend"] for one in told}) == 1
    for one, answer in zip(told[1:], answers[1:], strict=True):
        expected = int(one["expected_cached_tokens"])
        assert expected > 100
        cached = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert abs(cached - expected) <= 16


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("shared", [False, True])
def test_a_port_in_use_is_one_line_and_no_stack_trace(shared: bool) -> None:
    """Also where who has it would share it."""
    with socket.socket() as taken:
        if shared:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, "-m", "prefold.proxy.cli", "serve", "--workers", "2"]
        options = ["--backend", "http://127.0.0.1:9", "--admin-port", "0"]
        port = str(taken.getsockname()[1])
        shown = subprocess.run(
            [*command, *options, "--port", port],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert shown.returncode == 1
    assert "cannot listen" in shown.stderr
    assert "Traceback" not in shown.stderr
