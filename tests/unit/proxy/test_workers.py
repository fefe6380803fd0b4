"""What workers share, without processes: the table, loads, limits, queues, frames."""

from __future__ import annotations

import asyncio
import math
import os
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.backends.admission import Admission
from prefold.backends.backend import Backend, Lease
from prefold.backends.engine import EngineFacts, ServedModel
from prefold.backends.health import HealthRules, Outcome
from prefold.backends.pool import BackendPool
from prefold.measurement.record import RequestOutcome, RequestRecord
from prefold.prefix_index.deltas import Finished, Placed
from prefold.proxy.errors import RateLimited, SettingsError
from prefold.proxy.rate_limit import RateLimiter
from prefold.proxy.settings import Key, Settings
from prefold.proxy.workers.channel import Channel
from prefold.proxy.workers.health import HealthTeller, take_in
from prefold.proxy.workers.messages import (
    Down,
    Ended,
    Frame,
    FrameReader,
    Kind,
    Made,
    Peers,
    Recorded,
    Start,
    Wanted,
    frame,
)
from prefold.proxy.workers.port import reserved
from prefold.proxy.workers.shared import (
    SharedLimiter,
    SharedLoad,
    SharedSuspects,
    numbers,
)
from prefold.proxy.workers.slots import Slots
from prefold.proxy.workers.table import Table

WORKERS = 3


@pytest.fixture
def tables() -> Iterator[list[Table]]:
    """One memory, mapped as by several processes."""
    first, fd = Table.new(workers=WORKERS, numbers=numbers(1))
    yield [first, *(Table(fd, workers=WORKERS, numbers=numbers(1)) for _ in range(WORKERS - 1))]
    os.close(fd)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(-5, 5))))
def test_a_number_is_the_sum_of_what_each_worker_says(made: list[tuple[int, int, int]]) -> None:
    """Whoever adds what, each one sees the same total, and the rest without its own."""
    table, fd = Table.new(workers=3, numbers=5)
    os.close(fd)
    cells = [[table.cells(number, row) for number in range(5)] for row in range(3)]
    sums = [[0] * 5 for _ in range(3)]
    for row, number, amount in made:
        cells[row][number].add(amount)
        sums[row][number] += amount
    for row in range(3):
        for number in range(5):
            total = sum(sums[other][number] for other in range(3))
            assert cells[row][number].total == total
            assert cells[row][number].others == total - sums[row][number]
    table.clear(1)
    for number in range(5):
        assert cells[0][number].total == sums[0][number] + sums[2][number]


def test_the_load_of_a_worker_that_died_is_gone(tables: list[Table]) -> None:
    """The others' stays."""
    loads = [SharedLoad(table, 7, row) for row, table in enumerate(tables)]
    for load in loads:
        load.add(2, 100)
    loads[1].wait(5.0)
    assert (loads[0].in_flight, loads[0].queued_tokens) == (6, 300)
    assert loads[0].waits_elsewhere(after=0.0) == 5.0
    assert loads[1].waits_elsewhere(after=0.0) == math.inf
    tables[0].clear(1)

    assert (loads[2].in_flight, loads[2].queued_tokens) == (4, 200)
    assert loads[0].waits_elsewhere(after=0.0) == math.inf
    watcher = SharedLoad(tables[0], 7, None)
    assert watcher.in_flight == 4
    assert not watcher.is_idle


def test_a_wait_that_is_too_old_counts_for_nothing(tables: list[Table]) -> None:
    """Its process hangs or has died: nobody waits longer than one may."""
    loads = [SharedLoad(table, 0, row) for row, table in enumerate(tables)]
    loads[0].wait(10.0)
    loads[1].wait(20.0)

    assert loads[2].waits_elsewhere(after=5.0) == 10.0
    assert loads[2].waits_elsewhere(after=15.0) == 20.0
    assert loads[2].waits_elsewhere(after=25.0) == math.inf


async def test_those_that_wait_are_let_in_by_age_over_all_processes(tables: list[Table]) -> None:
    """One place, three queues: in order of arrival, whoever releases it, and no newcomer first."""
    order: list[str] = []
    times = iter(range(1, 10_000))
    sides = [Side(table, row, lambda: float(next(times))) for row, table in enumerate(tables)]
    first = sides[0].lease()
    waiting = []
    for number in range(9):
        side = sides[number % WORKERS]
        waiting.append(asyncio.create_task(side.take(f"number {number}", order)))
        await asyncio.sleep(0)
    newcomer = asyncio.create_task(sides[2].take("newcomer", order))
    await asyncio.sleep(0)
    first.release(Outcome.SUCCESS, 0.0)
    await asyncio.wait_for(asyncio.gather(*waiting, newcomer), 20)

    assert order == [*(f"number {number}" for number in range(9)), "newcomer"]


class Side:
    """One process's view of a backend with one place."""

    def __init__(self, table: Table, row: int, clock: object) -> None:
        assert callable(clock)
        self.backend = Backend(
            name="b",
            url="http://b",
            headers={},
            engine=None,
            rules=HealthRules(),
            max_in_flight=1,
        )
        self.backend.facts = EngineFacts(models=(ServedModel(id="m"),))
        self.backend.health.probed(0.0)
        self.backend.load = SharedLoad(table, 0, row)
        pool = BackendPool([self.backend], 1000.0)
        self.admission = Admission(pool, queue=99, queue_s=1e6, clock=clock, look_s=0.001)

    def lease(self) -> Lease:
        return Lease(self.backend, 10, 0.0)

    async def take(self, name: str, order: list[str]) -> None:
        [_] = await self.admission.candidates("m")
        lease = self.lease()
        assert self.backend.in_flight == 1
        order.append(name)
        await asyncio.sleep(0)
        lease.release(Outcome.SUCCESS, 0.0)


@given(
    st.lists(st.tuples(st.integers(0, 1), st.floats(0, 30), st.booleans()), max_size=40),
    st.sampled_from([0.0, 3.0, 60.0]),
    st.sampled_from([0, 2]),
)
def test_two_workers_limit_as_one_would(
    made: list[tuple[int, float, bool]], rate: float, parallel: int
) -> None:
    """Whichever of them is asked, and whichever the request ends at."""
    table, fd = Table.new(workers=2, numbers=numbers(1))
    os.close(fd)
    one = RateLimiter()
    two = [SharedLimiter(table, {"k": 0}, row) for row in range(2)]
    for limiter in (one, *two):  # the buckets of all begin at the same moment
        limiter.allowance("k", requests_per_minute=rate, now=0.0)
    now, open_at = 0.0, list[int]()
    for side, pause, release in made:
        now += pause
        verdicts = [_admitted(limiter, rate, parallel, now) for limiter in (one, two[side])]
        for limiter in two:
            limiter.learn([("k", rate)], now)
        assert verdicts[0] == verdicts[1]
        if verdicts[0]:
            open_at.append(side)
        if release and open_at:
            one.release("k")
            two[open_at.pop()].release("k")


def _admitted(limiter: RateLimiter, rate: float, parallel: int, now: float) -> bool:
    try:
        limiter.admit("k", requests_per_minute=rate, parallel=parallel, now=now)
    except RateLimited:
        return False
    return True


def test_a_request_that_breaks_backends_under_two_workers_is_refused_by_all() -> None:
    """Until one of them has seen it answered."""
    peers: list[SharedSuspects] = []

    def told_to(me: int) -> SharedSuspects:
        def tell(key: bytes, backend: str) -> None:
            for number, other in enumerate(peers):
                if number != me:
                    other.take_in(key, backend, 0.0)

        return SharedSuspects(lambda body: body[:4], tell)

    peers += [told_to(0), told_to(1), told_to(2)]
    peers[0].harmed(b"body of it", "a", 0.0)
    assert not peers[2].refused(b"body of it", 1.0)
    peers[1].harmed(b"body of it", "b", 0.0)
    assert all(one.refused(b"body of it", 1.0) for one in peers)
    assert not any(one.refused(b"else", 1.0) for one in peers)
    peers[2].answered(b"body of it")

    assert not any(one.refused(b"body of it", 1.0) for one in peers)


def test_failures_are_told_and_successes_only_after_failures() -> None:
    """A sound backend is no news, whoever sent to it."""
    told: list[Peers] = []
    witness = HealthTeller(told.append)
    witness.ended("b", Outcome.SUCCESS, trial=False)
    witness.ended("b", Outcome.NEUTRAL, trial=False)
    assert told == []
    witness.ended("b", Outcome.FAILURE, trial=False)
    witness.ended("b", Outcome.SUCCESS, trial=False)
    witness.ended("b", Outcome.SUCCESS, trial=False)
    assert told == [Ended("b", Outcome.FAILURE, False), Ended("b", Outcome.SUCCESS, False)]
    witness.heard(Down("b"))
    witness.ended("b", Outcome.SUCCESS, trial=True)

    assert told[2:] == [Ended("b", Outcome.SUCCESS, True)]


def test_what_others_saw_fail_is_ejected_here(tables: list[Table]) -> None:
    """And what they saw down is down; a backend that is not here is no error."""
    side = Side(tables[0], 0, lambda: 0.0)
    pool = BackendPool([side.backend], 1.0)
    for _ in range(3):
        take_in(Ended("b", Outcome.FAILURE, False), pool, 1.0)
    take_in(Ended("x", Outcome.FAILURE, False), pool, 1.0)
    assert side.backend.health.state(1.0) == "ejected"
    take_in(Down("b"), pool, 1.0)

    assert side.backend.health.state(1.0) == "down"


peer_messages = st.one_of(
    st.builds(
        Placed,
        backend=st.text(),
        number=st.integers(0, 2**63),
        unit_tokens=st.just(1),
        length=st.just(2),
        seed=st.integers(0, 2**64 - 1),
        units=st.binary(max_size=40),
    ),
    st.builds(Finished, st.text(), st.integers(0, 2**63), st.booleans()),
    st.builds(Made, st.text(), st.text(), st.text()),
    st.builds(Ended, st.text(), st.sampled_from(Outcome), st.booleans()),
)


sent = st.lists(st.tuples(st.integers(0, 2**16 - 1), st.lists(peer_messages)), max_size=6)


@given(sent, st.data())
def test_frames_come_out_as_they_went_in(
    made: list[tuple[int, list[Peers]]], data: st.DataObject
) -> None:
    """However the stream is cut into pieces."""
    raw = b"".join(frame(Kind.PEERS, source, messages).encoded() for source, messages in made)
    reader, found = FrameReader(), list[Frame]()
    while raw:
        size = data.draw(st.integers(1, len(raw)))
        found += reader.feed(raw[:size])
        raw = raw[size:]

    assert [(one.source, list(one.messages())) for one in found] == made


def test_records_and_settings_survive_the_way() -> None:
    """Moments as they were; keys too, since a worker needs them."""
    record = RequestRecord(
        endpoint="/v1/x",
        received=1.5,
        outcome=RequestOutcome.OK,
        tokens=[2.0, 2.5],
        reported_tokens=None,
        failed_backends=["a"],
    )
    [read] = frame(Kind.PARENT, 1, [Recorded(record)]).messages()
    assert read == Recorded(record)
    settings = Settings(keys=(Key(tenant="t", sha256="0" * 64),))
    order = Start(settings, number=1, rows=2, log_level=20, slots={"b": 3})
    [back] = frame(Kind.ORDERS, 0, [order]).messages()

    assert back == order


@pytest.mark.parametrize(
    "raw",
    [b"\xff\xff\xff\xff\x01\x00\x00\x00\x00", b"\x00\x00\x00\x00\x09\x00\x00\x00\x00"],
)
def test_what_is_no_frame_is_an_error(raw: bytes) -> None:
    """A length beyond all bounds, an unknown kind."""
    with pytest.raises(ValueError, match=r"frame|Kind"):
        list(FrameReader().feed(raw))


def test_a_slot_is_given_away_again_only_when_it_is_idle() -> None:
    """Requests of a removed backend still end there."""
    busy = {0}
    slots = Slots(3, lambda slot: slot not in busy)
    assert slots.assign(["a"]) == {"a": 1}
    busy.add(1)
    assert slots.assign(["b"]) == {"b": 2}
    with pytest.raises(SettingsError, match="too many"):
        slots.assign(["b", "c"])
    busy.clear()
    assert slots.assign(["b", "c"]) == {"b": 2, "c": 0}


def test_a_port_is_reserved_for_processes_of_one_parent() -> None:
    """A second parent does not get it, though all would share."""
    with reserved("127.0.0.1", 0) as port, socket.socket() as worker:
        worker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        worker.bind(("127.0.0.1", port))
        worker.listen()
        with pytest.raises(OSError, match="in use"), reserved("127.0.0.1", port):
            pass


async def test_what_the_other_end_does_not_read_is_dropped_and_told_of() -> None:
    """Counted; nobody waits; and when it reads again, what was lost can be made good."""
    ours, theirs = socket.socketpair()
    recovered = asyncio.Event()
    _, channel = await asyncio.get_running_loop().create_unix_connection(
        lambda: Channel(on_frame=lambda frame: None, on_recovery=recovered.set, high_bytes=1000),
        sock=ours,
    )
    theirs.setblocking(False)
    message = Made("t", "r" * 1000, "b")
    sent = 0
    while not channel.dropped[Kind.PEERS]:
        channel.send(Kind.PEERS, [message])
        channel.put(Kind.PARENT, Wanted("b"))
        sent += 1
    assert not recovered.is_set()
    reader, read = FrameReader(), list[Frame]()
    while not recovered.is_set():
        try:
            read += reader.feed(theirs.recv(2**16))
        except BlockingIOError:
            await asyncio.sleep(0)
    channel.send(Kind.PEERS, [message])
    channel.close()
    await channel.closed
    while raw := theirs.recv(2**16):
        read += reader.feed(raw)
    theirs.close()

    peers = [one for one in read if one.kind is Kind.PEERS]
    assert len(peers) == sent - channel.dropped[Kind.PEERS] + 1
