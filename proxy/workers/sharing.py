"""A worker's side of what workers share: what happens here is told, what others tell is taken in.

While the parent does not read, or is not there, everything goes on with what this worker knows.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping

from prefold.measurement.record import RequestRecord
from prefold.prefix_index.deltas import Corrected, Finished, Placed, SharedIndex
from prefold.proxy.app import Own, Proxy
from prefold.proxy.compression.forms import Forms
from prefold.proxy.documents.order import DocumentOrders
from prefold.proxy.replicas.index import KeyedIndex
from prefold.proxy.replicas.pins import ReplicaPins
from prefold.proxy.replicas.seal import Seal
from prefold.proxy.settings import Settings
from prefold.proxy.workers.channel import Channel
from prefold.proxy.workers.health import HealthTeller, take_in
from prefold.proxy.workers.messages import (
    Arranged,
    Backends,
    Down,
    Emptied,
    Ended,
    Forgot,
    Formed,
    Frame,
    Gone,
    Harmed,
    Kind,
    Made,
    Orders,
    Parent,
    Peers,
    Pinned,
    Rated,
    Recorded,
    Start,
    Status,
    Wanted,
)
from prefold.proxy.workers.shared import (
    SentBooks,
    SharedLimiter,
    SharedLoad,
    SharedPins,
    SharedRate,
    SharedSuspects,
)
from prefold.proxy.workers.table import Table

log = logging.getLogger(__name__)
LOOK_S = 0.005
"""Between two looks for a place that has become free in another worker, while somebody waits."""


class Sharing:
    def __init__(
        self, start: Start, table: Table, channel: Channel, clock: Callable[[], float]
    ) -> None:
        self._row = start.number
        self._table = table
        self._channel = channel
        self._clock = clock
        compression = start.compression or start.settings.compression
        self._settings = dataclasses.replace(start.settings, compression=compression)
        self._health = HealthTeller(self._tell)
        replicas = bool(start.settings.redis.url)
        index = KeyedIndex if replicas else SharedIndex
        self._index = index(
            self._tell, lambda backend: channel.send(Kind.PARENT, [Wanted(backend)])
        )
        self._suspects: SharedSuspects | None = None
        self._pins = SharedPins(lambda *made: self._tell(Made(*made)))
        if replicas:
            seal = Seal(start.settings.routing.secret.encode())
            self._pins = ReplicaPins(lambda *made: self._tell(Made(*made)), seal.response)
        self._replicas_row = start.rows - 1 if replicas else None
        self._orders = DocumentOrders(
            lambda context, documents: self._tell(Arranged(context, tuple(documents)))
        )
        self._forms = Forms(
            decided=lambda message, compressed: self._tell(Formed(message, tuple(compressed)))
        )
        self._proxy: Proxy | None = None
        self._lost = 0
        digests = [bytes.fromhex(key.sha256) for key in start.settings.keys]
        self._rates = {
            digest: key.requests_per_minute
            for digest, key in zip(digests, start.settings.keys, strict=True)
            if key.requests_per_minute
        }
        self._limiter = SharedLimiter(
            table, {digest: number for number, digest in enumerate(digests)}, start.number
        )
        self.own = Own(
            index=self._index,
            pins=self._pins,
            limiter=self._limiter,
            books=SentBooks(self._record),
            suspects=self._make_suspects,
            document_orders=self._orders,
            forms=self._forms,
            keeps_ledger=False,
            look_s=LOOK_S,
        )

    def settings(self) -> Settings:
        """With what the last order said: what a reload reads."""
        return self._settings

    def attach(self, proxy: Proxy, slots: Mapping[str, int]) -> None:
        """To be called before anything can be sent to a backend that is new."""
        self._proxy = proxy
        for backend in proxy.pool:
            if backend.witness is None:
                backend.load = SharedLoad(
                    self._table, slots[backend.name], self._row, self._replicas_row
                )
                backend.rate = SharedRate(_telling_rate(self._tell, backend.name))
                backend.witness = self._health

    def report(self, message: Parent) -> None:
        self._channel.put(Kind.PARENT, message)

    def learn_rates(self) -> None:
        """To be called often."""
        self._limiter.learn(self._rates.items(), self._clock())

    def status(self, proxy: Proxy) -> None:
        self.report(
            Status(
                modes={one.name: (one.shown_mode.value, one.shown_reason) for one in proxy.pool},
                believed={one.name: self._index.size_tokens(one.name) for one in proxy.pool},
                tokenizers=proxy.tokenizers(),
                waiting=proxy.waiting(),
                lost=self._lost,
                errors={
                    one.name: error
                    for one in proxy.pool
                    if (error := one.prediction.error) is not None
                },
                capacities={one.name: self._index.capacity_tokens(one.name) for one in proxy.pool},
            )
        )

    def recovered(self) -> None:
        """The parent reads again, and what it missed includes the ends of what was begun."""
        self._tell(Forgot())

    def on_frame(self, frame: Frame) -> None:
        """Raises MsgspecError."""
        for message in frame.messages():
            self._take_in(frame.source, message)

    def _take_in(self, source: int, message: Peers | Parent | Orders) -> None:
        now = self._clock()
        match message:
            case Placed() | Finished() | Corrected():
                self._index.take_in(source, message, now)
            case Made(tenant, response_id, backend):
                self._pins.take_in(tenant, response_id, backend)
            case Arranged(context, documents):
                self._orders.take_in(context, documents)
            case Formed(formed, compressed):
                self._forms.take_in(formed, compressed)
            case Pinned(digest, backend) if isinstance(self._pins, ReplicaPins):
                self._pins.of_others.learn(digest, backend)
            case Rated(backend, tokens, seconds):
                self._take_in_rate(backend, tokens, seconds)
            case Harmed(digest, backend) if self._suspects is not None:
                self._suspects.take_in(digest, backend, now)
            case Forgot():
                self._index.forget(source, now)
            case Gone(gone):
                self._index.forget(gone, now)
            case Emptied(backend):
                self._index.clear(backend)
            case Backends(backends, slots, arms, compression):
                self._settings = dataclasses.replace(
                    self._settings, backends=backends, arms=arms, compression=compression
                )
                if self._proxy is not None:
                    self._proxy.reloader.reload_or_log()
                    self.attach(self._proxy, slots)
            case Ended() | Down() if self._proxy is not None:
                self._health.heard(message)
                take_in(message, self._proxy.pool, now)
            case _:
                pass

    def _take_in_rate(self, backend: str, tokens: int, seconds: float) -> None:
        if self._proxy is None or backend not in self._proxy.pool:
            return
        rate = self._proxy.pool[backend].rate
        if isinstance(rate, SharedRate):
            rate.take_in(tokens, seconds)

    def _make_suspects(self, digest: Callable[[bytes], bytes]) -> SharedSuspects:
        self._suspects = SharedSuspects(
            digest, lambda key, backend: self._tell(Harmed(key, backend))
        )
        return self._suspects

    def _tell(self, message: Peers | Callable[[], Peers]) -> None:
        self._channel.put(Kind.PEERS, message)

    def _record(self, record: RequestRecord) -> None:
        if not self._channel.put(Kind.PARENT, Recorded(record)):
            self._lost += 1


def _telling_rate(tell: Callable[[Peers], None], backend: str) -> Callable[[int, float], None]:
    return lambda tokens, seconds: tell(Rated(backend, tokens, seconds))
