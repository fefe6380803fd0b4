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

    def first(self) -> int:
        return next(iter(self.waiters))

    def wants(self, backend: Backend) -> bool:
        serves = self.model is None or backend.serves(self.model)
        return serves and backend.name not in self.excluded


class Admission:
    """For one event loop. At most `queue` requests wait, at most `queue_s` seconds each. `clock` is
    the one that leases are made by."""

    def __init__(
        self, pool: BackendPool, *, queue: int, queue_s: float, clock: Callable[[], float]
    ) -> None:
        self._pool = pool
        self._queue = queue
        self._queue_s = queue_s
        self._clock = clock
        self._lines: dict[tuple[str | None, frozenset[str]], _Line] = {}
        self._numbers = 0
        self.waiting = 0
        pool.notify(self._wake)

    async def candidates(self, model: str | None, excluded: Collection[str] = ()) -> list[Backend]:
        """Backends with a free place that list `model` (any for None), less the `excluded` names:
        at once, or when there is one. An empty list: there would be none even if all had room.
        Raises QueueFull or QueueTimeout."""
        now = self._clock()
        found = self._not_wanted(self._pool.candidates(model, now, excluded))
        if found or not self._pool.serving(model, now, excluded):
            return found
        if self.waiting >= self._queue:
            raise QueueFull("enough requests wait already")
        try:
            async with asyncio.timeout(self._queue_s):
                return await self._wait(model, frozenset(excluded))
        except TimeoutError as error:
            raise QueueTimeout("no backend had room in time") from error

    def _not_wanted(self, found: list[Backend]) -> list[Backend]:
        """Those that nobody waits for."""
        if not self._lines:
            return found
        lines = self._lines.values()
        return [backend for backend in found if not any(line.wants(backend) for line in lines)]

    async def _wait(self, model: str | None, excluded: frozenset[str]) -> list[Backend]:
        loop = asyncio.get_running_loop()
        line = self._lines.setdefault((model, excluded), _Line(model, excluded))
        number = self._numbers = self._numbers + 1
        self.waiting += 1
        loop.call_soon(self._wake)  # an ejection may have ended: that is no event
        try:
            while True:
                line.waiters[number] = loop.create_future()
                await line.waiters[number]
                now = self._clock()
                found = self._pool.candidates(model, now, excluded)
                if found or not self._pool.serving(model, now, excluded):
                    return found
        finally:
            self.waiting -= 1
            del line.waiters[number]
            if not line.waiters:
                del self._lines[model, excluded]
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
            if not woken.done() and (
                self._pool.candidates(line.model, now, line.excluded)
                or not self._pool.serving(line.model, now, line.excluded)
            ):
                woken.set_result(None)
