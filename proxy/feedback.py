"""What an answer teaches of its backend's cache: the index is corrected by what the engine
reported, and how far the two were apart decides what its mode is worth.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from prefold.backends.backend import Backend, Mode
from prefold.backends.prediction import Change
from prefold.measurement.record import RequestRecord
from prefold.proxy.exchange import Exchange
from prefold.proxy.fleet import Fleet

log = logging.getLogger(__name__)


class Feedback:
    """Of one process; the clock is the one that leases go by."""

    def __init__(self, fleet: Fleet, clock: Callable[[], float]) -> None:
        self._fleet = fleet
        self._clock = clock

    def learn(self, exchange: Exchange, record: RequestRecord) -> None:
        """To be called before the exchange is closed, of a prompt that was prefilled once and
        answered; notes in the record what was corrected. Of a prompt without ids on a backend that
        is known by ids, nothing is learned: that was no prediction of its cache model."""
        backend, placement = exchange.backend, exchange.placement
        if placement is None:
            return
        exact = backend.mode is not Mode.APPROXIMATE
        if exact and record.encoded_tokens is None:
            return
        now = self._clock()
        reported, prompt_tokens = record.reported_tokens, record.prompt_tokens
        if reported is None or prompt_tokens is None:
            self._tell(backend, backend.prediction.unreported())
            return
        expected, length = placement.cached_tokens, placement.prefix.length
        if not exact:  # bytes stood for tokens
            expected = round(expected * prompt_tokens / max(length, 1))
        elif prompt_tokens == length:
            made = exchange.correct(reported, record.output_tokens or 0)
            record.lost_tokens, record.found_tokens = made.lost_tokens, made.found_tokens
            if made.emptied:
                record.emptied = True
                log.warning(
                    "backend %s lost its cache: requests in a row found nothing of what was used"
                    " last, so nothing from before them is believed to be there",
                    backend.name,
                )
        self._tell(backend, backend.prediction.observe(expected, reported, now), now)
        if self._fleet.doubted:
            self._fleet.try_events_again(backend, now)

    def _tell(self, backend: Backend, change: Change, now: float = 0.0) -> None:
        if change is Change.NONE:
            return
        if backend.mode is Mode.EVENTS:
            if change is Change.DROPPED:
                self._fleet.doubt_events(backend, now)
            return
        level = logging.WARNING if change in (Change.DROPPED, Change.SILENT) else logging.INFO
        log.log(
            level, "backend %s: mode %s: %s", backend.name, backend.shown_mode, backend.shown_reason
        )
