"""One engine's event stream over ZeroMQ: connections, replays, and the end of it. What messages are
worth is `follower`'s business.

pyzmq is an extra (`prefold[events]`), imported when a stream is opened.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefold.backends.kv_events.codec import MAX_PAYLOAD_BYTES, MalformedEvents
from prefold.backends.kv_events.follower import Follower, Progress, Sink

if TYPE_CHECKING:
    import zmq.asyncio

MAX_QUEUED_MESSAGES = 10_000
MAX_REPLAYS = 2
"""In a row: one from the last known batch, and one from the engine's start if it is another."""


class PyzmqMissing(ImportError):
    """Says how to install it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where an engine's events are to be had.

    An `endpoint` with a wildcard (`tcp://*:5557`) is bound here and engines connect to it, as it is
    in engines' own settings; any other is connected to. A `replay_endpoint` is always the engine's.
    Messages of other topics than `topic` are another engine's and passed over; "" takes all.
    """

    endpoint: str
    replay_endpoint: str | None = None
    topic: str = ""

    @property
    def binds(self) -> bool:
        return "*" in self.endpoint or "[::]" in self.endpoint


class Subscriber:
    """`run` it as a task, one for each source."""

    def __init__(self, source: Source, sink: Sink, *, replay_timeout_s: float = 5.0) -> None:
        """`replay_timeout_s` bounds the wait for each message of a replay."""
        self._source = source
        self._sink = sink
        self._timeout_s = replay_timeout_s
        self.follower = Follower(sink, name=source.endpoint, topic=source.topic)

    async def run(self) -> None:
        """Never returns; cancel it to stop, and all sockets are closed. Raises PyzmqMissing, and
        OSError if the endpoint cannot be bound or is none."""
        try:
            import zmq.asyncio
        except ImportError:
            raise PyzmqMissing("KV events need pyzmq: pip install 'prefold[events]'") from None
        context = zmq.asyncio.Context()
        try:
            await self._follow(context)
        finally:
            self._sink.distrust("the event stream is not followed any more")
            context.destroy(linger=0)

    async def _follow(self, context: zmq.asyncio.Context) -> None:
        import zmq.asyncio

        events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        with (
            context.socket(zmq.SUB) as socket,
            socket.get_monitor_socket(events) as monitor,
        ):
            _open(socket, self._source)
            poller = zmq.asyncio.Poller()
            poller.register(monitor, zmq.POLLIN)
            poller.register(socket, zmq.POLLIN)
            while True:
                ready = dict(await poller.poll())
                # Connections first: an engine that began anew connects before it sends.
                if monitor in ready:
                    await self._connection_changed(context, await monitor.recv_multipart())
                elif socket in ready:
                    await self._received(context, await socket.recv_multipart())
                # A receive that need not wait does not yield, and there may be thousands in a row.
                await asyncio.sleep(0)

    async def _connection_changed(self, context: zmq.asyncio.Context, frames: list[bytes]) -> None:
        import zmq
        from zmq.utils.monitor import parse_monitor_message

        if parse_monitor_message(frames)["event"] == zmq.EVENT_DISCONNECTED:
            self.follower.disconnected()
        else:
            await self._catch_up(context)

    async def _received(self, context: zmq.asyncio.Context, frames: list[bytes]) -> None:
        if self.follower.live(frames):
            return
        await self._catch_up(context)
        if not self.follower.live(frames):  # not even in the replay
            self.follower.no_replay()
            self.follower.live(frames)

    async def _catch_up(self, context: zmq.asyncio.Context) -> None:
        """Fill what is missing, if anything is. The stream waits in its socket meanwhile."""
        if self._source.replay_endpoint is not None:
            for _ in range(MAX_REPLAYS):
                try:
                    progress = await self._replay(context, self._source.replay_endpoint)
                except (TimeoutError, MalformedEvents):
                    break
                if progress is Progress.DONE:
                    return
        self.follower.no_replay()

    async def _replay(self, context: zmq.asyncio.Context, endpoint: str) -> Progress:
        """Raises TimeoutError, MalformedEvents."""
        import zmq

        with context.socket(zmq.DEALER) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.MAXMSGSIZE, MAX_PAYLOAD_BYTES)
            socket.connect(endpoint)
            start = self.follower.begin_replay()
            await socket.send_multipart([b"", start.to_bytes(8, "big")])
            progress = Progress.MORE
            while progress is Progress.MORE:
                frames = await asyncio.wait_for(socket.recv_multipart(), self._timeout_s)
                progress = self.follower.replayed(frames)
                await asyncio.sleep(0)  # as above
            return progress


def _open(socket: zmq.asyncio.Socket, source: Source) -> None:
    import zmq

    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RCVHWM, MAX_QUEUED_MESSAGES)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_PAYLOAD_BYTES)
    socket.setsockopt(zmq.RECONNECT_IVL, 100)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 5000)
    # A host that is gone without a word is noticed within half a minute.
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 15)
    socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, 5)
    socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, 3)
    socket.setsockopt(zmq.SUBSCRIBE, source.topic.encode())
    try:
        if source.binds:
            socket.bind(source.endpoint)
        else:
            socket.connect(source.endpoint)
    except zmq.ZMQError as error:
        raise OSError(error.errno, error.strerror, source.endpoint) from error
