"""Who may go on now, and who waits: a bounded queue before backends that all have enough to do.

Nobody overtakes: whoever comes waits behind those that wait for the same backend. A free place is
not reserved but taken: the caller makes its lease before it awaits anything.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from prefold.backends.backend import Backend
from prefold.backends.errors import QueueFull, QueueTimeout
from prefold.backends.pool import BackendPool


@dataclass(slots=True)
class _Line:
    """Those who wait for the same backends, by number, each with the future that wakes it. Only the
    first is ever woken; it stays the first until it has looked for itself."""

    model: str | None
    excluded: frozenset[str]
    waiters: OrderedDict[int, asyncio.Future[None]] = field(default_factory=OrderedDict)
    since: dict[int, float] = field(default_factory=dict)
    """When each of them came."""

    def oldest(self) -> float:
        return self.since[self.first()]

    def first(self) -> int:
        return next(iter(self.waiters))

    def wants(self, backend: Backend) -> bool:
        return backend.serves(self.model) and backend.name not in self.excluded


class Admission:
    """For one event loop. At most `queue` requests wait, at most `queue_s` seconds each. `clock` is
    the one that leases are made by.

    Where several processes serve, those that wait are let in by age over all of them: each process
    says at every backend's load since when it waits for it, and leaves a place to whoever waits
    longer. A place that becomes free elsewhere is no event here: so it looks every `look_s` seconds
    while somebody waits.
    """

    def __init__(
        self,
        pool: BackendPool,
        *,
        queue: int,
        queue_s: float,
        clock: Callable[[], float],
        look_s: float | None = None,
    ) -> None:
        """Without `look_s` this process is the only one."""
        self._pool = pool
        self._queue = queue
        self._queue_s = queue_s
        self._clock = clock
        self._lines: dict[tuple[str | None, frozenset[str]], _Line] = {}
        self._look_s = look_s
        self._looking = False
        self._numbers = 0
        self.waiting = 0
        pool.notify(self._wake)

    async def candidates(self, model: str | None, excluded: Collection[str] = ()) -> list[Backend]:
        """Backends with a free place that list `model` (any for None), less the `excluded` names:
        at once, or when there is one. An empty list: there would be none even if all had room.
        Raises QueueFull or QueueTimeout."""
        now = self._clock()
        found = self._not_wanted(self._pool.candidates(model, now, excluded), now)
        if found or not self._pool.serving(model, now, excluded):
            return found
        if self.waiting >= self._queue:
            raise QueueFull("enough requests wait already")
        try:
            async with asyncio.timeout(self._queue_s):
                return await self._wait(model, frozenset(excluded))
        except TimeoutError as error:
            raise QueueTimeout("no backend had room in time") from error

    def _not_wanted(self, found: list[Backend], now: float) -> list[Backend]:
        """Those that nobody waits for."""
        found = self._left_to_us(found, now, now)
        if not self._lines:
            return found
        lines = self._lines.values()
        return [backend for backend in found if not any(line.wants(backend) for line in lines)]

    async def _wait(self, model: str | None, excluded: frozenset[str]) -> list[Backend]:
        loop = asyncio.get_running_loop()
        line = self._lines.setdefault((model, excluded), _Line(model, excluded))
        number = self._numbers = self._numbers + 1
        line.waiters[number] = loop.create_future()
        line.since[number] = self._clock()
        self.waiting += 1
        try:
            self._tell()
            self._look()
            loop.call_soon(self._wake)  # an ejection may have ended: that is no event
            while True:
                await line.waiters[number]
                line.waiters[number] = loop.create_future()
                now = self._clock()
                found = self._turn_of(number, self._pool.candidates(model, now, excluded))
                found = self._left_to_us(found, line.since[number], now)
                if found or not self._pool.serving(model, now, excluded):
                    return found
        finally:
            self.waiting -= 1
            del line.waiters[number], line.since[number]
            if not line.waiters:
                del self._lines[model, excluded]
            self._tell()
            # The next one's turn, once the caller has made its lease.
            loop.call_soon(self._wake)

    def _wake(self) -> None:
        """Let the first of each line look, if there may be something for it; the longest wait goes
        first. Called whenever that may have changed."""
        if not self._lines:
            return
        now = self._clock()
        for line in sorted(self._lines.values(), key=_Line.first):
            woken = line.waiters[line.first()]
            found = self._pool.candidates(line.model, now, line.excluded)
            found = self._turn_of(line.first(), found)
            if not woken.done() and (
                self._left_to_us(found, line.oldest(), now)
                or not self._pool.serving(line.model, now, line.excluded)
            ):
                woken.set_result(None)

    def _turn_of(self, number: int, found: list[Backend]) -> list[Backend]:
        """Those that nobody in another line has waited for longer: two places may become free at
        once, and who was woken for the first of them is still to come."""
        older = [line for line in self._lines.values() if line.first() < number]
        if not older:
            return found
        return [backend for backend in found if not any(line.wants(backend) for line in older)]

    def _left_to_us(self, found: list[Backend], since: float, now: float) -> list[Backend]:
        """Those that nobody in another process has waited for longer. Who says so longer than one
        may wait has died or hangs."""
        if self._look_s is None:
            return found
        return [
            backend
            for backend in found
            if backend.load.waits_elsewhere(now - self._queue_s) >= since
        ]

    def _tell(self) -> None:
        """The other processes, since when somebody here waits for which backend. Not for one that
        seems ill from here: they may see it differently, and would leave it alone."""
        if self._look_s is None:
            return
        now = self._clock()
        for backend in self._pool:
            since = [line.oldest() for line in self._lines.values() if line.wants(backend)]
            usable = since and backend.health.usable(now)
            backend.load.wait(min(since) if usable else None)

    def _look(self) -> None:
        if self._look_s is None or self._looking or not self._lines:
            return
        self._looking = True
        asyncio.get_running_loop().call_later(self._look_s, self._looked)

    def _looked(self) -> None:
        self._looking = False
        self._tell()
        self._wake()
        self._look()
