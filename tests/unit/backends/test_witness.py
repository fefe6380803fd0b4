"""What a process tells others of a backend's health."""

from __future__ import annotations

import pytest

from prefold.backends.backend import Backend, Lease
from prefold.backends.client import Client
from prefold.backends.detect import OPENAI
from prefold.backends.engine import EngineFacts
from prefold.backends.health import HealthRules, Outcome
from prefold.backends.http1 import Limits
from prefold.backends.monitor import Monitor
from tests.support.upstream import scripted


class Notes:
    def __init__(self) -> None:
        self.told: list[object] = []

    def ended(self, backend: str, outcome: Outcome, *, trial: bool) -> None:
        self.told.append((backend, outcome, trial))

    def down(self, backend: str) -> None:
        self.told.append(backend)


@pytest.fixture
def notes() -> Notes:
    return Notes()


def backend(notes: Notes, url: str = "http://b") -> Backend:
    made = Backend(
        name="b", url=url, headers={}, engine=OPENAI, rules=HealthRules(failures_to_eject=1)
    )
    made.witness = notes
    return made


def test_how_exchanges_end_is_told_once(notes: Notes) -> None:
    """A trial as one; a failure of a backend that is gone as that."""
    one = backend(notes)
    one.health.probed(0.0)
    lease = Lease(one, 5, 0.0)
    lease.release(Outcome.FAILURE, 1.0)
    lease.release(Outcome.FAILURE, 1.0)
    Lease(one, 5, 100.0).release(Outcome.SUCCESS, 101.0)
    refused = Lease(one, 5, 200.0)
    one.health.down()
    refused.release(Outcome.FAILURE, 201.0)

    assert notes.told == [("b", Outcome.FAILURE, False), ("b", Outcome.SUCCESS, True), "b"]
    assert (one.in_flight, one.queued_tokens) == (0, 0)


async def test_a_backend_that_went_away_is_told_once(notes: Notes) -> None:
    """When a probe finds nobody there, and not again while it stays away."""

    async def ready(one: Backend, facts: EngineFacts, restarted: bool) -> bool:
        return True

    async with Client(Limits()) as client:
        monitor = Monitor(client=client, interval_s=60.0, timeout_s=5.0, on_ready=ready)
        async with scripted([]) as upstream:
            one = backend(notes, upstream.url)
            assert await monitor.probe(one)
        one.url = "http://127.0.0.1:9"
        for _ in range(3):
            assert not await monitor.probe(one)

    assert notes.told == ["b"]
