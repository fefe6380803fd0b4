"""Several workers as one replica: their parent tells other replicas what they do, and them what
others tell. Knows nothing of Redis.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec

from prefold.backends.pool import BackendPool
from prefold.measurement.prometheus import Metrics
from prefold.prefix_index.deltas import Corrected, Finished, Placed
from prefold.proxy.replicas.figures import ReplicaMetrics
from prefold.proxy.replicas.loads import Elsewhere, OfReplicas
from prefold.proxy.replicas.messages import Loads, Told
from prefold.proxy.replicas.names import Emptyings, Names
from prefold.proxy.replicas.start import link_of, seal_of
from prefold.proxy.settings import Settings
from prefold.proxy.workers.hub import Hub
from prefold.proxy.workers.messages import Emptied, Forgot, Formed, Made, Peers, Pinned
from prefold.proxy.workers.shared import SharedLoad

SOURCE_SHIFT = 40
"""Workers number their placements each for itself; to other replicas they are one."""


class WorkersReplica:
    """What the hub tells is told to others, and the other way round."""

    def __init__(
        self, settings: Settings, pool: BackendPool, hub: Hub, clock: Callable[[], float]
    ) -> None:
        """Raises SettingsError."""
        self._pool = pool
        self._hub = hub
        self._clock = clock
        self._seal = seal_of(settings)
        self._link = link_of(settings, self._seal, clock)
        self._names = Names(self._seal)
        self._elsewhere = Elsewhere()
        self._emptyings = Emptyings()
        self._loads: dict[str, OfReplicas] = {}
        hub.others = self

    @asynccontextmanager
    async def sharing(self, metrics: Metrics) -> AsyncIterator[None]:
        """Until it is left."""
        self.tick(self._clock())
        async with self._link.running(self) as inbox:
            metrics.add(ReplicaMetrics(self._link, inbox, lambda: len(self._elsewhere)))
            yield

    # As the hub sees us.

    def told(self, source: int, message: Peers) -> None:
        match message:
            case Placed() | Finished() | Corrected():
                number = message.number + (source << SOURCE_SHIFT)
                self._put(msgspec.structs.replace(message, number=number))
            case Formed():
                self._put(message)
            case Made(tenant, response_id, backend):
                self._put(Pinned(self._seal.response(tenant, response_id), backend))
            case _:
                pass

    def forgot(self) -> None:
        self._put(Forgot())

    def emptied(self, backend: str) -> None:
        """Found here."""
        self._emptyings.note(backend, self._clock())
        self._put(Emptied(backend))

    def _put(self, message: Told) -> None:
        self._link.put(lambda: self._names.outward(message))

    # As the link sees us.

    def tick(self, now: float) -> None:
        self._names.learn(self._pool)
        self._loads = {
            backend.name: backend.load
            for backend in self._pool
            if isinstance(backend.load, SharedLoad)
        }
        self._elsewhere.apply(self._loads, now)

    def loads(self) -> Loads:
        return self._names.loads(self._loads)

    def heard(self, source: int, messages: Sequence[Told], now: float) -> None:
        passed: list[Peers] = []
        for told in messages:
            message = self._names.inward(told)
            match message:
                case Placed() | Finished() | Corrected() | Formed() | Pinned():
                    passed.append(message)
                case Emptied(backend) if self._emptyings.news(backend, now):
                    self._hub.heard(source, passed)
                    passed = []
                    self._hub.emptied(backend)
                case Forgot():
                    self._hub.heard(source, passed)
                    passed = []
                    self._hub.gone(source)
                case Loads():
                    self._elsewhere.told(source, self._names.shares(message), now)
                case _:
                    pass
        self._hub.heard(source, passed)

    def lost(self, source: int, now: float) -> None:
        self._hub.gone(source)
