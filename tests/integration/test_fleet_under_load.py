"""The fleet behind the real proxy: limits and queue, backends that hang, fail, come and go."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from prefold.backends.backend import Backend
from prefold.proxy.serve import Running, running
from prefold.proxy.settings import Backend as BackendSettings
from prefold.proxy.settings import Health, Limits, Settings, Timeouts
from tests.support.proxy import BASE, proxy_before, until
from tests.support.upstream import (
    DONE,
    END,
    Script,
    Step,
    chunk,
    delta,
    event,
    head,
    scripted,
    stream,
    whole,
)

CHAT = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
GOOD = stream(delta("hi"), delta(finish="stop"), DONE)
HELD: Script = [
    head(),
    chunk(delta("a")),
    Step.WAIT,
    *(chunk(piece) for piece in (delta("b"), delta(finish="stop"), DONE)),
    END,
]
SILENT: Script = [Step.WAIT]


async def ask(http: aiohttp.ClientSession, body: object = CHAT) -> tuple[int, bytes]:
    async with http.post("/v1/chat/completions", json=body) as answer:
        return answer.status, await answer.read()


@asynccontextmanager
async def proxy_with_room(
    *urls: str, room: int, settings: Settings = BASE
) -> AsyncIterator[Running]:
    """As `proxy_before`, with so many places on each backend."""
    backends = [
        BackendSettings(name=f"b{n}", url=url, max_in_flight=room) for n, url in enumerate(urls)
    ]
    async with running(replace(settings, backends=tuple(backends))) as server:
        for backend in server.proxy.pool:
            await server.proxy.monitor.probe(backend)
        yield server


def in_flight(server: Running) -> list[int]:
    return [backend.in_flight for backend in server.proxy.pool]


async def waiting(server: Running) -> int:
    async with aiohttp.ClientSession() as http, http.get(server.admin_url + "/metrics") as answer:
        lines = (await answer.text()).splitlines()
    [line] = [line for line in lines if line.startswith("prefold_waiting_requests ")]
    return int(float(line.split()[1]))


async def until_waiting(server: Running, count: int) -> None:
    for _ in range(400):
        if await waiting(server) == count:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("they never waited")


# Limits and the queue.


async def test_three_hundred_streams_at_once_on_one_backend() -> None:
    """No hidden limit of a hundred connections."""
    async with (
        scripted(HELD) as upstream,
        proxy_before([upstream.url]) as server,
        aiohttp.ClientSession(server.url, connector=aiohttp.TCPConnector(limit=0)) as http,
    ):
        tasks = [asyncio.create_task(ask(http)) for _ in range(300)]
        await until(lambda: len(upstream.received) == 300, tries=2000)
        assert in_flight(server) == [300]
        upstream.go_on()
        answers = await asyncio.gather(*tasks)

        assert {status for status, _ in answers} == {200}
        assert all(body.endswith(DONE) for _, body in answers)
        assert in_flight(server) == [0]


async def test_what_a_backend_has_no_room_for_waits_its_turn() -> None:
    """Never more than max_in_flight at once; nobody is refused, nothing is lost."""
    most = 0
    async with (
        scripted(GOOD) as upstream,
        proxy_with_room(upstream.url, room=2) as server,
        aiohttp.ClientSession(server.url, connector=aiohttp.TCPConnector(limit=0)) as http,
    ):

        async def watched() -> tuple[int, bytes]:
            nonlocal most
            answer = await ask(http)
            most = max(most, *in_flight(server))
            return answer

        answers = await asyncio.gather(*(watched() for _ in range(40)))

        assert {status for status, _ in answers} == {200}
        assert most <= 2
        assert in_flight(server) == [0]
        assert await waiting(server) == 0


async def test_a_full_queue_refuses_and_says_when_to_come_back() -> None:
    """One is served, one waits, the third is told at once."""
    settings = replace(BASE, limits=Limits(queue=1))
    async with (
        scripted(HELD, GOOD) as upstream,
        proxy_with_room(upstream.url, room=1, settings=settings) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        first = asyncio.create_task(ask(http))
        await until(lambda: len(upstream.received) == 1)
        second = asyncio.create_task(ask(http))
        await until_waiting(server, 1)
        async with http.post("/v1/chat/completions", json=CHAT) as refused:
            assert refused.status == 503
            assert 1 <= int(refused.headers["Retry-After"]) <= 60
            assert (await refused.json())["error"]["code"] == "overloaded"
        upstream.go_on()

        assert [status for status, _ in await asyncio.gather(first, second)] == [200, 200]


async def test_who_waited_long_enough_is_told_so() -> None:
    """After queue_s; the backend never sees it."""
    settings = replace(BASE, timeouts=Timeouts(queue_s=0.05))
    async with (
        scripted(HELD) as upstream,
        proxy_with_room(upstream.url, room=1, settings=settings) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        first = asyncio.create_task(ask(http))
        await until(lambda: len(upstream.received) == 1)
        status, body = await ask(http)
        assert status == 503
        assert b"overloaded" in body
        upstream.go_on()

        assert (await first)[0] == 200
        assert len(upstream.received) == 1


async def test_a_client_that_leaves_the_queue_gives_up_its_place() -> None:
    """The next one is served as if it had never been there."""
    async with (
        scripted(HELD, GOOD) as upstream,
        proxy_with_room(upstream.url, room=1) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        first = asyncio.create_task(ask(http))
        await until(lambda: len(upstream.received) == 1)
        leaving = asyncio.create_task(ask(http))
        await until_waiting(server, 1)
        staying = asyncio.create_task(ask(http))
        await until_waiting(server, 2)
        leaving.cancel()
        await until_waiting(server, 1)
        upstream.go_on()

        assert [status for status, _ in await asyncio.gather(first, staying)] == [200, 200]
        assert len(upstream.received) == 2
        assert in_flight(server) == [0]


# Health.


def ejecting(**timeouts: float) -> Settings:
    return replace(
        BASE,
        health=Health(interval_s=0.1, failures_to_eject=2, eject_s=1000.0, eject_max_s=1000.0),
        timeouts=Timeouts(**timeouts),
    )


async def test_a_backend_that_answers_probes_and_hangs_on_requests_is_left() -> None:
    """Time-outs eject it; good probes do not bring it back, and others are not held up."""
    async with (
        scripted(SILENT) as hanging,
        scripted(GOOD) as good,
        scripted(GOOD) as another,
        proxy_before(
            [hanging.url, good.url, another.url], settings=ejecting(first_byte_s=0.05)
        ) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        pool = server.proxy.pool
        for name in ("b1", "b2"):
            pool[name].queued_tokens += 10**9  # so that the hanging one is chosen
        assert [(await ask(http))[0] for _ in range(2)] == [504, 504]
        assert pool["b0"].health.reachable
        for _ in range(3):
            await server.proxy.monitor.probe(pool["b0"])
            assert (await ask(http))[0] == 200

        assert len(hanging.received) == 2


def greeting(number: int) -> dict[str, Any]:
    """Each of another prefix, so that ties are settled for another backend."""
    return {**CHAT, "messages": [{"role": "user", "content": f"{number} times hello"}]}


async def test_with_all_backends_failing_each_is_still_tried() -> None:
    """Most are ejected, so ejection says nothing: better to fail after an attempt than without. The
    first one that works again is found, and is trusted from then on."""
    broken: Script = [head(), Step.RESET]
    async with (
        scripted(broken) as one,
        scripted(broken) as two,
        scripted(broken) as three,
        proxy_before([one.url, two.url, three.url], settings=ejecting()) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        upstreams = (one, two, three)
        for number in range(20):
            before = sum(len(upstream.received) for upstream in upstreams)
            # Another request each time: one that broke two backends is refused.
            assert (await ask(http, greeting(number)))[0] == 502
            assert sum(len(upstream.received) for upstream in upstreams) - before >= 1
        assert not any(backend.health.usable(0.0) for backend in server.proxy.pool)
        three.scripts = [GOOD]
        statuses = [(await ask(http, greeting(number)))[0] for number in range(20, 60)]

        assert 200 in statuses
        assert server.proxy.pool["b2"].health.usable(float("inf"))
        assert in_flight(server) == [0, 0, 0]


async def test_with_two_of_three_failing_the_third_serves_everybody() -> None:
    """Not a coin that is tossed for each request: few second attempts are allowed."""
    broken: Script = [head(), Step.RESET]
    async with (
        scripted(broken) as one,
        scripted(broken) as two,
        scripted(GOOD) as three,
        proxy_before([one.url, two.url, three.url], settings=ejecting()) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        bodies = [greeting(number) for number in range(100)]
        await asyncio.gather(*(ask(http, body) for body in bodies[:20]))
        statuses = [(await ask(http, body))[0] for body in bodies[20:]]

        assert statuses.count(200) >= len(statuses) - 2  # the last failures that eject
        assert len(one.received) + len(two.received) <= 40


async def test_client_errors_never_eject_and_busy_is_no_illness() -> None:
    """Ten 400s, ten 429s, ten error events that blame the client: the next request is served."""
    mistake = whole({"error": {"message": "no", "type": "invalid_request_error"}}, 400)
    busy = whole({"error": {"message": "later"}}, 429)
    blaming = stream(event(error={"message": "no", "code": 400}))
    async with (
        scripted(*[mistake] * 10, *[busy] * 10, *[blaming] * 10, GOOD) as upstream,
        proxy_before([upstream.url], settings=ejecting()) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        statuses = [(await ask(http))[0] for _ in range(30)]

        assert statuses[:20] == [400] * 10 + [429] * 10
        assert server.proxy.pool["b0"].health.usable(0.0)
        assert (await ask(http))[0] == 200


@pytest.mark.parametrize("room", [1, 100])
async def test_in_flight_returns_to_zero_after_a_thousand_mixed_requests(room: int) -> None:
    """Served, refused, cut, retried, left by their clients, waiting in between: all are counted."""
    scripts: Sequence[Script] = (
        GOOD,
        whole({"error": {"message": "no"}}, 400),
        [head(), Step.RESET],
        whole({"error": {"message": "later"}}, 503),
        [head(), chunk(delta("a")), Step.RESET],
        whole({"id": "c1", "choices": []}),
        [head(), chunk(delta("a")), Step.CLOSE],
    )
    settings = replace(BASE, health=Health(interval_s=0.2, failures_to_eject=10**6))
    async with (
        scripted(*[script for _ in range(200) for script in scripts]) as one,
        scripted(*[script for _ in range(200) for script in reversed(scripts)]) as two,
        proxy_with_room(one.url, two.url, room=room, settings=settings) as server,
        aiohttp.ClientSession(server.url, connector=aiohttp.TCPConnector(limit=50)) as http,
    ):
        one.pause_s = two.pause_s = 0.0
        below_zero: list[Backend] = []

        async def request(number: int) -> None:
            try:
                async with asyncio.timeout(0.01 if number % 9 == 0 else 60):
                    await ask(http, {**CHAT, "seed": number})
            except (TimeoutError, aiohttp.ClientError):
                pass
            below_zero.extend(b for b in server.proxy.pool if not 0 <= b.in_flight <= room)

        await asyncio.gather(*(request(number) for number in range(1000)))
        await until(lambda: in_flight(server) == [0, 0])

        assert below_zero == []
        assert [backend.queued_tokens for backend in server.proxy.pool] == [0, 0]


# Changes while running.


async def test_a_stream_on_a_removed_backend_finishes() -> None:
    """It gets nothing new meanwhile; its name can be given again."""
    async with (
        scripted(HELD) as old,
        scripted(GOOD) as new,
        proxy_before([old.url]) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        backend = server.proxy.pool["b0"]
        streaming = asyncio.create_task(ask(http))
        await until(lambda: backend.in_flight == 1 and len(old.received) == 1)
        server.proxy.reloader.remove("b0")
        assert (await ask(http))[0] in (404, 503)
        server.proxy.reloader.add(BackendSettings(name="b0", url=new.url))
        await until(lambda: server.proxy.pool["b0"].health.reachable)
        assert (await ask(http))[0] == 200
        assert len(new.received) == 1
        old.go_on()
        status, body = await streaming

        assert status == 200
        assert body.endswith(DONE)
        assert b'"b"' in body
        assert (backend.in_flight, in_flight(server)) == (0, [0])


async def test_a_backend_that_is_added_serves_those_who_wait() -> None:
    """As soon as its first probe is good."""
    async with (
        scripted(HELD) as one,
        scripted(GOOD) as two,
        proxy_with_room(one.url, room=1) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        first = asyncio.create_task(ask(http))
        await until(lambda: len(one.received) == 1)
        second = asyncio.create_task(ask(http))
        await until_waiting(server, 1)
        async with (
            aiohttp.ClientSession(server.admin_url) as admin,
            admin.post("/backends", json={"url": two.url, "max_in_flight": 1}) as added,
        ):
            assert added.status == 201
        assert (await second)[0] == 200
        one.go_on()

        assert (await first)[0] == 200
        assert (len(one.received), len(two.received)) == (1, 1)
