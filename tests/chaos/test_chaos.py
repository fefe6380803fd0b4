"""The short version of `python -m tests.chaos`: fixed seeds, real processes."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from tests.chaos.plan import OF_NETWORK, Fault, plan
from tests.chaos.report import broken
from tests.chaos.restarts import restarts
from tests.chaos.slow_reader import parsed
from tests.chaos.storm import storm


@pytest.mark.timeout(180)
def test_backends_that_fail_under_load_cost_no_invariant(tmp_path: Path) -> None:
    """No answer ends clean but incomplete, no lease stays, nothing is thrown, all come back."""
    outcome = asyncio.run(
        storm(tmp_path, seed=2, seconds=10.0, workers=16, engine="scripted", count=3)
    )
    assert broken(outcome) == []
    assert outcome.faults.total() >= 3
    assert outcome.tally.requests.total() > 100


@pytest.mark.timeout(180)
def test_restarts_under_load_lose_no_request(tmp_path: Path) -> None:
    """What is in flight at SIGTERM is finished, and the open listener serves until it closes."""
    outcome = asyncio.run(restarts(tmp_path, rounds=2, seed=1))
    assert outcome.broken() == []
    assert outcome.late.requests.total() > 0


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_keeps_its_promises(seed: int) -> None:
    """The same for the same seed; one fault at a time on a backend, one backend without any, and no
    broken network where there is none."""
    relayed = [False, True, True]
    events = plan(seed, 60.0, relayed)
    assert events == plan(seed, 60.0, relayed)
    assert all(0 <= event.begins < event.ends <= 60.0 for event in events)
    for number in range(3):
        mine = [event for event in events if event.backend == number]
        assert all(former.ends < later.begins for former, later in pairwise(mine))
        assert relayed[number] or not {event.fault for event in mine} & OF_NETWORK
    for event in events:
        together = {e.backend for e in events if e.begins <= event.begins < e.ends}
        assert len(together) < 3


def test_a_plan_of_some_length_has_every_fault() -> None:
    """Else a run would prove less than it says."""
    assert {event.fault for event in plan(1, 60.0, [False, True, True])} == set(Fault)


@pytest.mark.parametrize(
    ("raw", "body", "whole"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", b"ab", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", b"ab", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", b"ab", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", b"ab", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", b"ab", False),
    ],
)
def test_the_slow_reader_tells_whole_bodies_from_cut_ones(
    raw: bytes, body: bytes, whole: bool
) -> None:
    """The judge of a run is judged itself."""
    received = parsed(raw)
    assert (received.body, received.whole) == (body, whole)
