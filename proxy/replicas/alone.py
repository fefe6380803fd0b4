"""A replica that is one process: what its parts share with those of other replicas.

Where several workers serve, their parent is the replica (`proxy/workers/replicas.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from prefold.backends.pool import BackendPool
from prefold.prefix_index.deltas import Corrected, Delta, Finished, Journal, Placed
from prefold.proxy.app import Own, Proxy
from prefold.proxy.compression.forms import Forms
from prefold.proxy.replicas.figures import ReplicaMetrics
from prefold.proxy.replicas.index import KeyedIndex
from prefold.proxy.replicas.loads import Elsewhere, OfReplicas, ReplicaLoad
from prefold.proxy.replicas.messages import Loads, Told
from prefold.proxy.replicas.names import Emptyings, Names
from prefold.proxy.replicas.pins import ReplicaPins
from prefold.proxy.replicas.start import link_of, seal_of
from prefold.proxy.settings import Settings
from prefold.proxy.workers.hub import JOURNAL_BYTES
from prefold.proxy.workers.messages import Emptied, Forgot, Formed, Pinned

OURS = 0
"""Our own source."""
REPLAY_MESSAGES = 64
"""Taken in without a break."""


class Alone:
    def __init__(self, settings: Settings, clock: Callable[[], float]) -> None:
        """Raises SettingsError."""
        self._seal = seal_of(settings)
        self._clock = clock
        self._link = link_of(settings, self._seal, clock)
        self._names = Names(self._seal)
        self._journal = Journal(JOURNAL_BYTES)
        self._elsewhere = Elsewhere()
        self._emptyings = Emptyings()
        self._index = KeyedIndex(self._tell_delta, self._replay_soon)
        self._pins = ReplicaPins(self._tell_pin, self._seal.response)
        self._pool: BackendPool | None = None
        self._loads: dict[str, OfReplicas] = {}
        self._replays: set[asyncio.Task[None]] = set()
        self._forms = Forms(
            decided=lambda message, compressed: self._link.put(
                lambda: Formed(message, tuple(compressed))
            )
        )
        self.own = Own(index=self._index, pins=self._pins, forms=self._forms, emptied=self._emptied)

    @asynccontextmanager
    async def sharing(self, proxy: Proxy) -> AsyncIterator[None]:
        """Until it is left."""
        self._pool = proxy.pool
        self.tick(self._clock())
        async with self._link.running(self) as inbox:
            proxy.metrics.add(ReplicaMetrics(self._link, inbox, lambda: len(self._elsewhere)))
            yield
        for task in self._replays:
            task.cancel()

    # What is told to others.

    def _tell_delta(self, make: Callable[[], Delta]) -> None:
        self._link.put(lambda: self._noted(make()))

    def _noted(self, delta: Delta) -> Told | None:
        self._journal.note(OURS, delta)
        return self._names.outward(delta)

    def _tell_pin(self, tenant: str, response_id: str, backend: str) -> None:
        self._link.put(
            lambda: self._names.outward(Pinned(self._seal.response(tenant, response_id), backend))
        )

    def _emptied(self, backend: str) -> None:
        """Found here: all it was believed to hold is gone."""
        self._link.outbox.gather()  # what was placed before is not to be noted after
        self._emptyings.note(backend, self._clock())
        self._forget_content(backend)
        self._link.put(lambda: self._names.outward(Emptied(backend)))

    def _forget_content(self, backend: str) -> None:
        self._journal.clear(backend)
        self._index.clear(backend)

    # As the link sees us.

    def tick(self, now: float) -> None:
        pool = self._pool
        if pool is None:
            return
        self._names.learn(pool)
        self._loads.clear()
        for backend in pool:
            if not isinstance(backend.load, ReplicaLoad):
                backend.load = ReplicaLoad(backend.load)
            self._loads[backend.name] = backend.load
        self._elsewhere.apply(self._loads, now)

    def loads(self) -> Loads:
        return self._names.loads(self._loads)

    def heard(self, source: int, messages: Sequence[Told], now: float) -> None:
        for told in messages:
            message = self._names.inward(told)
            match message:
                case Placed() | Finished() | Corrected():
                    self._journal.note(source, message)
                    self._index.take_in(source, message, now)
                case Pinned(digest, backend):
                    self._pins.of_others.learn(digest, backend)
                case Formed(formed, compressed):
                    self._forms.take_in(formed, compressed)
                case Emptied(backend) if self._emptyings.news(backend, now):
                    self._forget_content(backend)
                case Forgot():
                    self.lost(source, now)
                case Loads():
                    self._elsewhere.told(source, self._names.shares(message), now)
                case _:
                    pass

    def lost(self, source: int, now: float) -> None:
        self._index.forget(source, now)
        self._journal.forget(source)

    # What a cache that is new here is believed to hold.

    def _replay_soon(self, backend: str) -> None:
        task = asyncio.create_task(self._replay(backend), name="replicas: replay")
        self._replays.add(task)
        task.add_done_callback(self._replays.discard)

    async def _replay(self, backend: str) -> None:
        """What is under way here the index knows, or will be told the end of."""
        for number, (source, deltas) in enumerate(list(self._journal.replay(backend))):
            if number % REPLAY_MESSAGES == REPLAY_MESSAGES - 1:
                await asyncio.sleep(0)
            if source == OURS and not isinstance(deltas[-1], Finished):
                continue
            for delta in deltas:
                self._index.take_in(source, delta, self._clock())
