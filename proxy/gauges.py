"""What is shown of each backend in the metrics, as it is at a scrape."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prefold.backends.backend import Backend
from prefold.backends.pool import BackendPool
from prefold.measurement.prometheus import BackendGauges

if TYPE_CHECKING:
    pass


def gauges(
    pool: BackendPool,
    believed: Callable[[str], int],
    error: Callable[[Backend], float | None] = lambda backend: backend.prediction.error,
    capacity: Callable[[str], int] = lambda name: 0,
) -> Iterator[BackendGauges]:
    """`capacity` in tokens, 0 where it is not known."""
    now, backends = time.perf_counter(), list(pool)
    for backend, rate in zip(backends, pool.prefill_rates(backends), strict=True):
        yield BackendGauges(
            backend=backend.name,
            state=backend.health.state(now),
            mode=backend.shown_mode,
            in_flight=backend.load.here,
            queued_tokens=backend.load.queued_here,
            prefill_tokens_per_s=rate,
            prefill_overhead_s=backend.rate.overhead_s,
            believed_tokens=believed(backend.name),
            capacity_tokens=capacity(backend.name) or None,
            prediction_error=error(backend),
        )
