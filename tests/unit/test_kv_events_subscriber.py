"""The subscriber over real ZeroMQ sockets: who binds, replays, broken connections, a clean end."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

import msgspec
import pytest
import zmq
import zmq.asyncio

from prefold.backends.kv_events.changes import Change, Cleared, Removed
from prefold.backends.kv_events.subscriber import PyzmqMissing, Source, Subscriber

END = (-1).to_bytes(8, "big", signed=True)


class Told:
    """A sink that writes down what it is told, and lets a test wait for it."""

    def __init__(self) -> None:
        self.removed: list[Any] = []
        self.voids: list[bool] = []
        self.problem: str | None = None
        self._changed = asyncio.Event()

    def apply(self, changes: list[Change]) -> None:
        for change in changes:
            self.removed += change.handles if isinstance(change, Removed) else []
            assert isinstance(change, Removed | Cleared)
        self._changed.set()

    def void(self, *, complete: bool) -> None:
        self.removed.clear()
        self.voids.append(complete)
        self._changed.set()

    def distrust(self, reason: str) -> None:
        self.problem = reason
        self._changed.set()

    def trust(self) -> None:
        self.problem = None
        self._changed.set()

    async def until(self, ready: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not ready():
                self._changed.clear()
                await self._changed.wait()

    async def knows(self, *numbers: int) -> None:
        await self.until(lambda: self.problem is None and self.removed == list(numbers))


def payload(number: int, life: int = 1) -> bytes:
    """A batch that removes the block of its own number."""
    event = {"type": "BlockRemoved", "block_hashes": [number]}
    return msgspec.msgpack.encode([life * 1e6 + number, [event], 0])


class Engine:
    """A publisher, and a replay socket that answers with what `history` holds."""

    def __init__(self, context: zmq.asyncio.Context) -> None:
        self.pub = context.socket(zmq.XPUB)
        self.router = context.socket(zmq.ROUTER)
        self.history: dict[int, bytes] = {}
        self.asked: list[int] = []
        self.life = 1

    def bind(self, port: int = 0, replay: int = 0) -> Source:
        self.pub.bind(f"tcp://127.0.0.1:{port or '*'}")
        self.router.bind(f"tcp://127.0.0.1:{replay or '*'}")
        return Source(
            endpoint=self.pub.getsockopt_string(zmq.LAST_ENDPOINT),
            replay_endpoint=self.router.getsockopt_string(zmq.LAST_ENDPOINT),
        )

    async def subscribed(self) -> None:
        assert await asyncio.wait_for(self.pub.recv(), 20) == b"\x01"

    def record(self, *numbers: int) -> None:
        """Published, but to nobody."""
        self.history.update({number: payload(number, self.life) for number in numbers})

    async def publish(self, number: int, topic: bytes = b"") -> None:
        self.record(number)
        await self.pub.send_multipart([topic, number.to_bytes(8, "big"), self.history[number]])

    async def answer(self) -> None:
        """One replay."""
        client, empty, start = await asyncio.wait_for(self.router.recv_multipart(), 20)
        self.asked.append(int.from_bytes(start, "big"))
        for number, raw in self.history.items():
            if number >= self.asked[-1]:
                seq = number.to_bytes(8, "big")
                await self.router.send_multipart([client, empty, b"", seq, raw])
        await self.router.send_multipart([client, empty, b"", END, b""])

    def close(self) -> None:
        self.pub.close(linger=0)
        self.router.close(linger=0)


class StartEngine(Protocol):
    def __call__(self) -> Engine: ...


@pytest.fixture
async def start() -> AsyncIterator[StartEngine]:
    """Makes engines that end with the test."""
    context = zmq.asyncio.Context()
    engines = []

    def start() -> Engine:
        engines.append(Engine(context))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()
    context.term()


@asynccontextmanager
async def running(source: Source, told: Told, timeout_s: float = 20) -> AsyncIterator[Subscriber]:
    subscriber = Subscriber(source, told, replay_timeout_s=timeout_s)
    task = asyncio.create_task(subscriber.run())
    try:
        yield subscriber
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()


async def test_what_came_before_is_replayed_and_then_followed(start: StartEngine) -> None:
    """From 0 at first; what comes live afterwards goes on from there."""
    engine, told = start(), Told()
    source = engine.bind()
    engine.record(0, 1, 2)
    async with running(source, told) as subscriber:
        await engine.subscribed()
        await engine.answer()
        await told.knows(0, 1, 2)
        await engine.publish(3)
        await told.knows(0, 1, 2, 3)
        assert subscriber.follower.batches == 4
    assert engine.asked == [0]
    assert told.voids == [True]
    assert told.problem == "the event stream is not followed any more"


async def test_a_gap_is_replayed_from_the_last_known_message(start: StartEngine) -> None:
    """While that goes on, nothing is trusted; afterwards nothing is missing or there twice."""
    engine, told = start(), Told()
    source = engine.bind()
    async with running(source, told):
        await engine.subscribed()
        await engine.answer()
        await engine.publish(0)
        await told.knows(0)
        engine.record(1, 2)
        await engine.publish(3)
        await told.until(lambda: told.problem is not None)
        assert told.removed == [0]
        await engine.answer()
        await told.knows(0, 1, 2, 3)
        await engine.publish(4)
        await told.knows(0, 1, 2, 3, 4)
    assert engine.asked == [0, 0]
    assert told.voids == [False, True]  # nothing replayed, and then the first message of all


@pytest.mark.parametrize("silent", [False, True], ids=["no replay endpoint", "a silent one"])
async def test_without_a_replay_a_gap_voids_what_was_known(
    start: StartEngine, silent: bool
) -> None:
    """And what is told from there on is not all that the engine holds."""
    engine, told = start(), Told()
    bound = engine.bind()
    source = Source(
        endpoint=bound.endpoint, replay_endpoint=bound.replay_endpoint if silent else None
    )
    async with running(source, told, timeout_s=0.05):
        await engine.subscribed()
        await told.until(lambda: told.voids == [False])
        await engine.publish(0)
        await told.knows(0)
        await engine.publish(7)
        await told.knows(7)
        await engine.publish(8)
        await told.knows(7, 8)
    assert told.voids[-1] is False


async def test_an_engine_that_begins_anew_is_known_by_its_replay(
    start: StartEngine,
) -> None:
    """Its connection breaks, which ends all trust; its numbers are others, or its times are."""
    engine, told = start(), Told()
    source = engine.bind()
    engine.record(0, 1)
    async with running(source, told):
        await engine.subscribed()
        await engine.answer()
        await told.knows(0, 1)
        engine.close()
        await told.until(lambda: told.problem == "the event stream is down")
        again = start()
        assert source.replay_endpoint is not None
        again.life = 2
        again.bind(port_of(source.endpoint), port_of(source.replay_endpoint))
        again.record(0, 1, 2)
        await again.answer()
        await again.answer()
        await told.knows(0, 1, 2)
    assert again.asked == [1, 0]
    assert told.voids == [True, True]


async def test_engines_may_connect_to_us(start: StartEngine) -> None:
    """An endpoint with a wildcard is bound, as in the settings of vLLM; other topics are not it."""
    engine, told = start(), Told()
    async with running(Source(endpoint=f"tcp://*:{free_port()}", topic="kv@pod1"), told) as ours:
        engine.pub.connect(ours._source.endpoint.replace("*", "127.0.0.1"))
        assert await asyncio.wait_for(engine.pub.recv(), 20) == b"\x01kv@pod1"
        await engine.publish(0, b"kv@pod10")
        await engine.publish(0, b"kv@pod1")
        await told.knows(0)
        assert ours.follower.batches == 1


async def test_a_malformed_message_voids_what_was_known(start: StartEngine) -> None:
    """What it changed cannot be known; the next one is where history begins."""
    engine, told = start(), Told()
    source = Source(endpoint=engine.bind().endpoint)
    async with running(source, told) as subscriber:
        await engine.subscribed()
        await told.until(lambda: told.problem is None)
        await engine.publish(0)
        await told.knows(0)
        await engine.pub.send_multipart([b"", (1).to_bytes(8, "big"), b"\xc1"])
        await told.until(lambda: told.problem is not None)
        assert told.removed == []
        await engine.publish(2)
        await told.knows(2)
        assert subscriber.follower.malformed == 1
    assert told.voids[-1] is False


async def test_two_ranks_in_one_stream_are_malformed(start: StartEngine) -> None:
    """Each is a cache of its own."""
    engine, told = start(), Told()
    source = Source(endpoint=engine.bind().endpoint)
    async with running(source, told):
        await engine.subscribed()
        await told.until(lambda: told.problem is None)
        await engine.publish(0)
        await told.knows(0)
        other = msgspec.msgpack.encode([1.0, [], 1])
        await engine.pub.send_multipart([b"", (1).to_bytes(8, "big"), other])
        await told.until(lambda: told.problem is not None)
        assert told.problem is not None
        assert "ranks" in told.problem


@pytest.mark.parametrize("endpoint", ["tcp://*:port", "nowhere", "tcp://256.0.0.1"])
async def test_an_endpoint_that_is_none_is_an_error(endpoint: str) -> None:
    """At once, not by silence."""
    with pytest.raises(OSError, match=r"Invalid|not supported"):
        await Subscriber(Source(endpoint=endpoint), Told()).run()


async def test_without_pyzmq_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is an extra."""
    real = builtins.__import__

    def no_zmq(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        if name.startswith("zmq"):
            raise ImportError(name)
        return real(name, globals, locals, fromlist or (), level)

    monkeypatch.setattr(builtins, "__import__", no_zmq)
    with pytest.raises(PyzmqMissing, match=r"prefold\[events\]"):
        await Subscriber(Source(endpoint="tcp://127.0.0.1:1"), Told()).run()


def port_of(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


def free_port() -> int:
    with zmq.Context() as context, context.socket(zmq.PUB) as socket:
        return socket.bind_to_random_port("tcp://127.0.0.1")
