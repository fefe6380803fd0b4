"""Where compressed texts come from that are not in memory: Redis first, then the compressor; in
time, or for a later request. Decides nothing about what is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from prefold.compression.segment_cache import Flights
from prefold.compression.worker.pool import WorkerPool
from prefold.measurement.record import RequestRecord
from prefold.proxy.compression.forecast import Forecast
from prefold.proxy.compression.plan import Piece, Plan
from prefold.proxy.compression.shared_segments import SharedSegments

LATE, FAILED = "late", "failed"


class Getting:
    """Mutable: its limits may be set anew. For one event loop."""

    def __init__(
        self,
        *,
        pool: WorkerPool,
        flights: Flights,
        forecast: Forecast,
        shared: SharedSegments | None,
        deadline_s: float,
        speculative: bool,
        clock: Callable[[], float],
    ) -> None:
        """`shared`: what other processes compressed, where there is a place where they tell it."""
        self._pool = pool
        self._flights = flights
        self._forecast = forecast
        self._shared = shared
        self._deadline_s = deadline_s
        self._speculative = speculative
        self._clock = clock

    def become(self, *, deadline_s: float, speculative: bool) -> None:
        self._deadline_s, self._speculative = deadline_s, speculative

    async def recall(self, plan: Plan) -> float:
        """What other processes compressed; to be called before the gate and the compressor are
        asked: the gate is to know what is there, and a round trip is shorter than compressing.
        The seconds that are left of the deadline."""
        if self._shared is None:
            return self._deadline_s
        wanted = {
            piece.key: len(piece.segment.text)
            for piece in plan.missing()
            if piece.key not in self._flights
        }
        if not wanted:
            return self._deadline_s
        begun = self._clock()
        await self._shared.recall(wanted, self._deadline_s)
        plan.look_again()
        return self._deadline_s - (self._clock() - begun)

    async def compressed(
        self,
        plan: Plan,
        wanted: Sequence[Piece],
        record: RequestRecord,
        within_s: float,
        *,
        waiting: bool = True,
    ) -> str:
        """Why not all are there, `late` or `failed`; "": they are. Nothing is waited for that is
        known to come too late. `waiting`: the request does."""
        chars = sum(len(piece.segment.text) for piece in wanted)
        if self._pool.seconds_for(chars) > within_s:
            self.for_later(wanted, record)
            return LATE if self._pool.up else FAILED
        begun = self._clock()
        try:
            in_time = await self._wait(wanted, within_s, partial(_spent, record))
        finally:
            if waiting and record.end is None:
                record.compressor_waited_s = self._clock() - begun
        plan.look_again()
        texts = {piece.key: piece.segment.text for piece in wanted}
        for key, text in texts.items():
            if (kept := plan.kept.get(key)) is not None:
                self._forecast.learn(kept.chars, len(text))
        if all(key in plan.kept for key in texts):
            return ""
        return FAILED if in_time else LATE

    async def _wait(
        self, wanted: Sequence[Piece], within_s: float, spent: Callable[[float], None]
    ) -> bool:
        """Whether all ended in time. Of all rates at once; as a rule there is one."""
        by_rate: dict[float, dict[bytes, str]] = {}
        for piece in wanted:
            by_rate.setdefault(piece.rate, {})[piece.key] = piece.segment.text
        ended = await asyncio.gather(
            *(
                self._flights.wait(list(texts.items()), rate, within_s, spent)
                for rate, texts in by_rate.items()
            )
        )
        return all(ended)

    def for_later(self, pieces: Sequence[Piece], record: RequestRecord) -> None:
        """For the next request that holds them. Also where that is not wanted, one text goes to a
        compressor that is believed to be too slow: it would be believed so for ever."""
        if not self._speculative:
            chars = sum(len(piece.segment.text) for piece in pieces)
            slow = self._pool.seconds_for(chars) > self._deadline_s
            shortest = sorted(pieces, key=lambda piece: len(piece.segment.text))[:1]
            pieces = shortest if slow else ()
        for piece in pieces:
            self._flights.start(piece.key, piece.segment.text, piece.rate, partial(_spent, record))


def _spent(record: RequestRecord, seconds: float) -> None:
    """Once it has ended, a record is others' to read."""
    if record.end is None:
        record.compressor_spent_s = (record.compressor_spent_s or 0.0) + seconds
