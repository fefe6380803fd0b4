from __future__ import annotations

import asyncio
import statistics
from itertools import pairwise

import pytest

from prefold.measurement.definitions.timeline import Timeline
from prefold.proxy.replay.drive import arrivals, closed_loop, open_loop
from prefold.proxy.replay.prompts import Planned
from prefold.proxy.replay.send import Sent

REQUESTS = [Planned(path="/v1/completions", body={"n": number}) for number in range(12)]


class Gate:
    """A server that answers only when told to, and counts who waits for it."""

    def __init__(self) -> None:
        self.waiting = 0
        self.most = 0
        self.order: list[int] = []
        self._open = asyncio.Event()

    def open(self) -> None:
        self._open.set()

    async def send(self, planned: Planned, number: int, due: float) -> Sent:
        self.order.append(number)
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        await self._open.wait()
        self.waiting -= 1
        return Sent(
            number=number, target="t", timeline=Timeline(sent=due), status=200, late_s=0.0,
            decision="",
        )  # fmt: skip


def ignore(sent: Sent) -> None:
    pass


async def test_an_open_loop_sends_whatever_comes_back() -> None:
    """All are under way although none was answered."""
    gate = Gate()
    task = asyncio.ensure_future(open_loop(REQUESTS, [0.0] * 12, gate.send, ignore))
    for _ in range(200):
        await asyncio.sleep(0)
    waiting = gate.waiting
    gate.open()

    assert [sent.number for sent in await task] == list(range(12))
    assert waiting == 12


async def test_a_closed_loop_has_so_many_under_way_and_no_more() -> None:
    """In order; the next goes out when one has ended."""
    gate = Gate()
    task = asyncio.ensure_future(closed_loop(REQUESTS, 3, gate.send, ignore))
    for _ in range(50):
        await asyncio.sleep(0)
    waiting = gate.waiting
    gate.open()
    results = await task

    assert (waiting, gate.most) == (3, 3)
    assert gate.order == [sent.number for sent in results] == list(range(12))


def test_arrivals_have_the_rate_and_the_burstiness_asked_for() -> None:
    """The coefficient of variation of a gamma distribution's gaps is 1 / sqrt(shape)."""
    for burstiness, variation in ((1.0, 1.0), (0.25, 2.0), (16.0, 0.25)):
        times = arrivals(20_000, 50.0, burstiness, seed=3)
        gaps = [after - before for before, after in pairwise(times)]

        assert times[0] == 0.0
        assert statistics.mean(gaps) == pytest.approx(1 / 50, rel=0.06)
        assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(variation, rel=0.06)


def test_the_same_seed_gives_the_same_arrivals() -> None:
    """Arms are sent the same load."""
    assert arrivals(10, 5.0, 1.0, seed=1) == arrivals(10, 5.0, 1.0, seed=1)
    assert arrivals(10, 5.0, 1.0, seed=1) != arrivals(10, 5.0, 1.0, seed=2)
