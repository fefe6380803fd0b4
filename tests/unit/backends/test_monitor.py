"""Probes, and the tasks that repeat them."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from prefold.backends.backend import Backend
from prefold.backends.client import Client
from prefold.backends.detect import OPENAI
from prefold.backends.engine import EngineFacts
from prefold.backends.health import HealthRules
from prefold.backends.http1 import Limits
from prefold.backends.monitor import Monitor, Watches
from tests.support.upstream import scripted


class Ready:
    """Notes who became ready, and lets a test wait for it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, bool]] = []
        self.called = asyncio.Event()

    async def __call__(self, backend: Backend, facts: EngineFacts, restarted: bool) -> bool:
        self.calls.append((backend.name, restarted))
        self.called.set()
        return True


def backend(name: str, url: str) -> Backend:
    return Backend(
        name=name, url=url, headers={}, engine=OPENAI, rules=HealthRules(slow_start_s=10.0)
    )


@pytest.fixture
def ready() -> Ready:
    return Ready()


@pytest.fixture
async def monitor(ready: Ready) -> AsyncIterator[Monitor]:
    async with Client(Limits()) as client:
        yield Monitor(
            client=client, interval_s=60.0, timeout_s=20.0, on_ready=ready, clock=lambda: 100.0
        )


async def test_a_good_probe_makes_a_backend_usable_and_tells_those_who_wait(
    monitor: Monitor, ready: Ready
) -> None:
    """In that order; it is told at each good probe, since an ejection may have ended meanwhile."""
    told = []
    async with scripted([]) as upstream:
        one = backend("a", upstream.url)
        one.on_change = lambda: told.append(one.health.reachable)
        assert await monitor.probe(one)
        assert await monitor.probe(one)

    assert told == [True, True]
    assert one.serves("m")
    assert ready.calls == [("a", True)]


async def test_a_backend_that_was_away_is_ready_again_and_warms_up(
    monitor: Monitor, ready: Ready
) -> None:
    """By the clock that leases go by."""
    async with scripted([]) as upstream:
        one = backend("a", upstream.url)
        await monitor.probe(one)
        one.health.down()
        assert await monitor.probe(one)

    assert ready.calls == [("a", True), ("a", True)]
    assert one.health.warmth(100.0) < 1.0
    assert one.health.warmth(110.0) == 1.0


async def test_where_nobody_listens_a_backend_is_down_at_once(monitor: Monitor) -> None:
    """A refused connection needs no second look."""
    async with scripted([]) as upstream:
        one = backend("a", upstream.url)
    one.health.probed(0.0)
    assert not await monitor.probe(one)

    assert not one.health.reachable


async def test_each_backend_is_watched_until_it_is_stopped(monitor: Monitor, ready: Ready) -> None:
    """One task for each name; another of that name may follow."""
    async with scripted([]) as upstream, Watches(monitor) as watches:
        watches.start(backend("a", upstream.url))
        with pytest.raises(ValueError, match="already"):
            watches.start(backend("a", upstream.url))
        await ready.called.wait()
        watches.stop("a")
        with pytest.raises(KeyError):
            watches.stop("a")
        ready.called.clear()
        watches.start(backend("a", upstream.url))
        await ready.called.wait()

    assert ready.calls == [("a", True), ("a", True)]


async def test_a_stop_in_the_middle_of_a_probe_is_at_once_and_final(
    monitor: Monitor, ready: Ready
) -> None:
    """The server has the question and never answers; nothing of the backend changes any more."""
    asked, left = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        left.set()
        writer.close()

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    one = backend("a", f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
    async with Watches(monitor) as watches:
        watches.start(one)
        await asked.wait()
        watches.stop("a")
        await left.wait()
    listener.close()

    assert ready.calls == []
    assert not one.health.reachable


async def test_leaving_ends_all_watches(monitor: Monitor) -> None:
    """No task is left."""
    async with scripted([]) as upstream:
        async with Watches(monitor) as watches:
            for name in "abc":
                watches.start(backend(name, upstream.url))
        names = {task.get_name() for task in asyncio.all_tasks()}

    assert not {name for name in names if name.startswith("watch ")}
