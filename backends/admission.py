"""Stand-in until the queue is here: candidates at once, or none."""

from __future__ import annotations

from collections.abc import Callable, Collection

from prefold.backends.backend import Backend
from prefold.backends.pool import BackendPool


class Admission:
    def __init__(self, pool: BackendPool, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._clock = clock

    async def candidates(self, model: str | None, excluded: Collection[str] = ()) -> list[Backend]:
        return self._pool.candidates(model, self._clock(), excluded)
