"""What the parent does with what workers tell: passes it on to the others, keeps the books, and
knows enough to tell a worker that starts later what the others believe.

No sockets and no processes here: a worker is a channel to put messages into.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from prefold.backends.backend import Mode
from prefold.backends.pool import BackendPool
from prefold.measurement.books import Books
from prefold.measurement.ledger.writer import Ledger
from prefold.prefix_index.deltas import Delta, Finished, Journal, Placed
from prefold.proxy.pins import MAX_PINS, DigestPins
from prefold.proxy.workers.channel import Channel
from prefold.proxy.workers.health import take_in
from prefold.proxy.workers.messages import (
    Backends,
    Emptied,
    Forgot,
    Frame,
    Gone,
    Kind,
    Listening,
    Made,
    Orders,
    Parent,
    Peers,
    Pinned,
    Rated,
    Recorded,
    Status,
    Wanted,
    frame,
)
from prefold.proxy.workers.shared import SharedRate


class Others(Protocol):
    """Other replicas, each of which may have workers of its own."""

    def told(self, source: int, message: Peers) -> None:
        """By this worker."""

    def forgot(self) -> None:
        """Some of what was told will not be heard to end."""


JOURNAL_BYTES = 8 * 1024 * 1024
"""For each backend: a million blocks, or two million tokens where those themselves are compared."""


class Hub:
    """Mutable. Workers are known by their source, a number that no other one ever had."""

    def __init__(
        self,
        *,
        pool: BackendPool,
        books: Books,
        clock: Callable[[], float],
        on_listening: Callable[[int], None],
        ledger: Ledger | None = None,
    ) -> None:
        self.statuses: dict[int, Status] = {}
        self.lost_before = 0
        """Records that workers which are gone had lost."""
        self.others: Others | None = None
        """To be set before anything is told."""
        self._remote: set[int] = set()
        """Sources that are replicas, not workers."""
        self._pinned = DigestPins()
        self._pool = pool
        self._books = books
        self._ledger = ledger
        self._clock = clock
        self._on_listening = on_listening
        self._channels: dict[int, Channel] = {}
        self._journal = Journal(JOURNAL_BYTES)
        self._fleet: Backends | None = None
        self._made: OrderedDict[tuple[str, str], Made] = OrderedDict()

    @property
    def lost_records(self) -> int:
        return self.lost_before + sum(status.lost for status in self.statuses.values())

    def join(self, source: int, channel: Channel) -> None:
        """It is told of everything from here on, and of what was before when it asks."""
        self._channels[source] = channel
        if self._made:
            channel.send(Kind.PEERS, list(self._made.values()))
        if self._pinned:
            channel.send(Kind.PEERS, [Pinned(*one) for one in self._pinned.items()])

    def leave(self, source: int) -> None:
        """It has ended. No matter if it was not known."""
        self._channels.pop(source, None)
        self._forget(source)
        status = self.statuses.pop(source, None)
        if status is not None:
            self.lost_before += status.lost
            self._judge_modes()

    def order(self, message: Orders) -> None:
        """To all workers."""
        if isinstance(message, Backends):
            self._fleet = message
        made = frame(Kind.ORDERS, 0, [message])
        for channel in self._channels.values():
            channel.pass_on(made)

    def tell(self, message: Peers) -> None:
        """To all workers, what the parent saw itself."""
        made = frame(Kind.PEERS, 0, [message])
        for channel in self._channels.values():
            channel.pass_on(made)

    def emptied(self, backend: str) -> None:
        """It lost its cache."""
        self._journal.clear(backend)
        self.order(Emptied(backend))

    def recovered(self, source: int) -> None:
        """A worker reads again, and has missed something: it starts anew."""
        channel = self._channels.get(source)
        if channel is None:
            return
        if self._fleet is not None:
            channel.send(Kind.ORDERS, [self._fleet])
        others = (self._channels.keys() - {source}) | self._remote
        channel.send(Kind.ORDERS, [Gone(other) for other in sorted(others)])
        for backend in self._journal.backends():
            channel.send(Kind.ORDERS, [Emptied(backend)])
            self._replay(source, backend)

    def heard(self, source: int, messages: Sequence[Peers]) -> None:
        """From another replica, with the names that backends have here: for all workers."""
        if not messages:
            return
        self._remote.add(source)
        made = frame(Kind.PEERS, source, messages)
        for channel in self._channels.values():
            channel.pass_on(made)
        for message in messages:
            match message:
                case Placed() | Finished():
                    self._journal.note(source, message)
                case Pinned(digest, backend):
                    self._pinned.learn(digest, backend)
                case _:
                    pass

    def gone(self, source: int) -> None:
        """A replica has ended, or some of what it told was lost."""
        if source in self._remote:
            self._remote.discard(source)
            self._journal.forget(source)
            self.order(Gone(source))

    def on_frame(self, source: int, made: Frame) -> None:
        """Raises ValueError or MsgspecError for what is no frame of a worker."""
        if made.kind is Kind.PEERS:
            passed = Frame(made.kind, source, made.payload)
            for other, channel in self._channels.items():
                if other != source:
                    channel.pass_on(passed)
        for message in made.messages():
            self._take_in(source, message)

    def _take_in(self, source: int, message: Peers | Parent | Orders) -> None:
        if self.others is not None and isinstance(message, Peers):
            self.others.told(source, message)
        match message:
            case Placed() | Finished() if message.backend in self._pool:
                self._journal.note(source, message)
            case Recorded(record):
                self._books.add(record)
                if self._ledger is not None:
                    self._ledger.add(record)
            case Made():
                self._made[message.tenant, message.response_id] = message
                if len(self._made) > MAX_PINS:
                    self._made.popitem(last=False)
            case Rated(backend, tokens, seconds) if backend in self._pool:
                rate = self._pool[backend].rate
                if isinstance(rate, SharedRate):
                    rate.take_in(tokens, seconds)
            case Forgot():
                self._forget(source)
            case Wanted(backend):
                self._replay(source, backend)
            case Listening():
                self._on_listening(source)
            case Status():
                self.statuses[source] = message
                self._judge_modes()
            case _:
                take_in(message, self._pool, self._clock())

    def _forget(self, source: int) -> None:
        if self.others is not None:
            self.others.forgot()
        self._journal.forget(source)
        self.order(Gone(source))

    def _replay(self, to: int, backend: str) -> None:
        """Neighbours of one source in one frame. What a worker has under way itself it would never
        be told the end of."""
        channel = self._channels.get(to)
        if channel is None:
            return
        before, gathered = 0, list[Delta]()
        for source, deltas in self._journal.replay(backend):
            if source == to and not isinstance(deltas[-1], Finished):
                continue
            if source != before and gathered:
                channel.pass_on(frame(Kind.PEERS, before, gathered))
                gathered = []
            before = source
            gathered += deltas
        if gathered:
            channel.pass_on(frame(Kind.PEERS, before, gathered))

    def _judge_modes(self) -> None:
        """A backend's mode is the worst that a worker found it in."""
        for backend in self._pool:
            told = [
                status.modes[backend.name]
                for status in self.statuses.values()
                if backend.name in status.modes
            ]
            if told:
                order = list(Mode)
                mode, reason = max(told, key=lambda one: order.index(Mode(one[0])))
                backend.mode, backend.mode_reason = Mode(mode), reason
