"""Probes, and the tasks that repeat them."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest

from prefold.backends.backend import Backend
from prefold.backends.client import Client
from prefold.backends.detect import OPENAI, SGLANG
from prefold.backends.engine import Endpoint, EngineFacts, began_anew
from prefold.backends.health import HealthRules
from prefold.backends.http1 import Limits
from prefold.backends.monitor import Monitor, Watches
from prefold.backends.openai_compatible import OpenAICompatible
from tests.support.replies import fixture, server
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


async def test_why_a_probe_failed_is_kept_until_one_succeeds(monitor: Monitor) -> None:
    """For those who ask why a backend takes no requests."""
    async with scripted([]) as upstream:
        one = backend("a", upstream.url)
        one.engine, one.rank = None, 3
        assert not await monitor.probe(one)
        assert one.problem == "no data-parallel rank 3: the engine is openai"
        one.rank = None
        assert await monitor.probe(one)
        assert one.problem == ""


async def test_advice_is_logged_once(monitor: Monitor, caplog: pytest.LogCaptureFixture) -> None:
    """And again when it is another."""
    caplog.set_level("INFO")
    async with server(fixture("sglang_0.5.23")) as endpoint:
        one = backend("a", endpoint.url)
        one.engine = SGLANG
        for _ in range(3):
            assert await monitor.probe(one)
    advice = [text for text in caplog.messages if "--enable-cache-report" in text]
    assert len(advice) == 1


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


@pytest.mark.parametrize(
    ("before", "now", "anew"),
    [
        ({"prompt_tokens_total": 900}, {"prompt_tokens_total": 40}, True),
        ({"prompt_tokens_total": 900}, {"prompt_tokens_total": 900}, False),
        ({"prompt_tokens_total": 900}, {}, False),
        ({"started": 5.0}, {"started": 9.0}, True),
        ({"started": 5.0, "prompt_tokens_total": 9}, {"started": 5.0}, False),
    ],
)
def test_an_engine_that_began_anew_between_two_probes_is_known_by_what_it_tells(
    before: dict[str, float], now: dict[str, float], anew: bool
) -> None:
    """A start time that is another, or a count that fell; what is not told is no sign."""
    made = [
        EngineFacts(
            models=(),
            started=told.get("started"),
            prompt_tokens_total=None
            if "prompt_tokens_total" not in told
            else int(told["prompt_tokens_total"]),
        )
        for told in (before, now)
    ]
    assert began_anew(*made) == anew


async def test_a_restart_too_short_to_be_seen_down_empties_the_cache(
    monitor: Monitor, ready: Ready
) -> None:
    """Two probes found it ready, and its count of tokens began anew in between."""

    class Counting(OpenAICompatible):
        totals = iter((100, 250, 20, 30))

        async def probe(self, endpoint: Endpoint) -> EngineFacts | None:
            facts = await super().probe(endpoint)
            assert facts is not None
            return dataclasses.replace(facts, prompt_tokens_total=next(self.totals))

    async with scripted([]) as upstream:
        one = backend("a", upstream.url)
        one.engine = Counting()
        for _ in range(4):
            await monitor.probe(one)
    assert ready.calls == [("a", True), ("a", True)]


async def test_rounds_of_one_backend_follow_each_other() -> None:
    """The first one is still comparing tokens when the second begins: it empties no cache that was
    filled meanwhile."""
    told: list[bool] = []
    asked, go = asyncio.Event(), asyncio.Event()

    async def slow(backend: Backend, facts: EngineFacts, restarted: bool) -> bool:
        told.append(restarted)
        asked.set()
        await go.wait()
        return False

    async with scripted([]) as upstream, Client(Limits()) as client:
        one = backend("a", upstream.url)
        monitor = Monitor(client=client, interval_s=60.0, timeout_s=20.0, on_ready=slow)
        rounds = [asyncio.create_task(monitor.probe(one)) for _ in range(2)]
        await asked.wait()
        go.set()
        await asyncio.gather(*rounds)
    assert told == [True, False]
