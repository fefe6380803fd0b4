"""What the parent passes on between workers, over real sockets and without processes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence

import numpy as np
import pytest

from prefold.backends.backend import Backend, Mode
from prefold.backends.health import HealthRules, Outcome
from prefold.backends.pool import BackendPool
from prefold.measurement.books import Books
from prefold.measurement.record import RequestOutcome, RequestRecord
from prefold.prefix_index.block_lru import BlockLru
from prefold.prefix_index.deltas import Finished, SharedIndex, placed
from prefold.prefix_index.prefix import Prefix
from prefold.proxy.workers.channel import Channel
from prefold.proxy.workers.figures import believed_of, tokenizers_of, waiting_of
from prefold.proxy.workers.hub import Hub
from prefold.proxy.workers.messages import (
    Emptied,
    Ended,
    Frame,
    Gone,
    Kind,
    Listening,
    Made,
    Orders,
    Parent,
    Peers,
    Recorded,
    Status,
    Wanted,
)
from tests.support.proxy import until

PROMPT = Prefix.of_tokens(np.arange(64, dtype=np.uint32), 7)
BLOCK = 16


class Worker:
    """One end of a channel, and all that came through it."""

    def __init__(self, source: int) -> None:
        self.source = source
        self.frames: list[Frame] = []
        self.channel: Channel

    @property
    def heard(self) -> list[tuple[int, Peers | Parent | Orders]]:
        return [(frame.source, one) for frame in self.frames for one in frame.messages()]

    def tell(self, *messages: Peers) -> None:
        self.channel.send(Kind.PEERS, messages)

    def report(self, *messages: Parent) -> None:
        self.channel.send(Kind.PARENT, messages)

    async def hears(self, wanted: Sequence[tuple[int, Peers | Orders]]) -> None:
        await until(lambda: len(self.heard) >= len(wanted))
        assert self.heard == list(wanted)


class Scene:
    def __init__(self) -> None:
        self.backend = Backend(
            name="b", url="http://b", headers={}, engine=None, rules=HealthRules()
        )
        self.backend.health.probed(0.0)
        self.books = Books()
        self.listening: list[int] = []
        self.hub = Hub(
            pool=BackendPool([self.backend], 1.0),
            books=self.books,
            clock=lambda: 1.0,
            on_listening=self.listening.append,
        )
        self.channels: list[Channel] = []

    async def join(self, source: int) -> Worker:
        worker = Worker(source)
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        _, channel = await loop.create_unix_connection(
            lambda: Channel(
                on_frame=lambda frame: self.hub.on_frame(source, frame),
                on_recovery=lambda: self.hub.recovered(source),
            ),
            sock=ours,
        )
        _, worker.channel = await loop.create_unix_connection(
            lambda: Channel(on_frame=worker.frames.append, on_recovery=lambda: None), sock=theirs
        )
        self.channels += [channel, worker.channel]
        self.hub.join(source, channel)
        return worker


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    yield made
    for channel in made.channels:
        channel.close()
        await channel.closed


async def test_what_one_tells_all_others_hear_and_nobody_twice(scene: Scene) -> None:
    """With the number of who told it; and what a worker made before another one came."""
    one, two, three = [await scene.join(source) for source in (1, 2, 3)]
    delta = placed("b", 5, PROMPT, BLOCK)
    made = Made("t", "r", "b")
    one.tell(delta, made)
    two.tell(Finished("b", 9, False))
    await two.hears([(1, delta), (1, made)])
    await three.hears([(1, delta), (1, made), (2, Finished("b", 9, False))])
    await one.hears([(2, Finished("b", 9, False))])
    four = await scene.join(4)

    await four.hears([(0, made)])


async def test_a_worker_that_starts_later_is_told_what_a_backend_holds(scene: Scene) -> None:
    """When it asks: what others finished or have under way, nothing of a worker that is gone, and
    nothing that it could never be told the end of."""
    one, two, three = [await scene.join(source) for source in (1, 2, 3)]
    done, open_one, gone = (placed("b", number, PROMPT, BLOCK) for number in (1, 2, 3))
    one.tell(done, Finished("b", 1, True), open_one)
    two.tell(gone)
    told: list[tuple[int, Peers]] = [
        (1, done),
        (1, Finished("b", 1, True)),
        (1, open_one),
        (2, gone),
    ]
    await three.hears(told)
    scene.hub.leave(2)
    await three.hears([*told, (0, Gone(2))])
    three.frames.clear()
    three.report(Wanted("b"))
    await three.hears([(1, done), (1, Finished("b", 1, True)), (1, open_one)])
    one.frames.clear()
    one.report(Wanted("b"))
    await one.hears([(1, done), (1, Finished("b", 1, True))])
    late = SharedIndex(lambda make: None, lambda backend: None)
    late.set_cache("b", BlockLru(capacity_tokens=1024, block_tokens=BLOCK), BLOCK)
    for source, delta in three.heard:
        assert not isinstance(delta, Wanted | Status | Gone)
        late.take_in(source, delta, 0.0)  # type: ignore[arg-type]
    assert late.match(PROMPT, "b").cached_tokens == 48
    three.frames.clear()
    scene.hub.emptied("b")
    three.report(Wanted("b"))
    one.tell(done)

    await three.hears([(0, Emptied("b")), (1, done)])


async def test_the_parent_counts_and_judges(scene: Scene) -> None:
    """Records, failures, the worst mode, sums over workers; what a gone worker lost stays lost."""
    one, two = await scene.join(1), await scene.join(2)
    one.report(
        Listening(),
        Recorded(RequestRecord(endpoint="/x", received=0.0, outcome=RequestOutcome.OK)),
        Status({"b": ("feedback", "equal")}, {"b": 10}, {"m": {"hits": 2}}, 3, 4),
    )
    two.report(Status({"b": ("approximate", "differ")}, {"b": 12}, {"m": {"hits": 5}}, 1, 0))
    two.tell(*[Ended("b", Outcome.FAILURE, False)] * 3)
    await until(lambda: len(scene.hub.statuses) == 2 and scene.backend.health.state(1.0) != "up")
    assert scene.listening == [1]
    assert sum(tally.requests for _, tally in scene.books) == 1
    assert scene.backend.health.state(1.0) == "ejected"
    assert (scene.backend.mode, scene.backend.mode_reason) == (Mode.APPROXIMATE, "differ")
    assert believed_of(scene.hub, "b") == 12
    assert tokenizers_of(scene.hub) == {"m": {"hits": 7}}
    assert waiting_of(scene.hub) == 4
    scene.hub.leave(2)
    assert scene.backend.mode is Mode.FEEDBACK
    scene.hub.leave(1)

    assert scene.hub.lost_records == 4


async def test_what_is_no_frame_ends_the_channel(scene: Scene) -> None:
    """That worker is started again, and the others go on."""
    one, two = await scene.join(1), await scene.join(2)
    one.channel.pass_on(Frame(Kind.PEERS, 0, b"\xc1"))
    await asyncio.wait_for(one.channel.closed, 5)
    two.report(Listening())
    await until(lambda: scene.listening == [2])
