"""For each bucket of the times to first token, the trace of the latest request in it: from a slow
bucket of a dashboard to what that request did.

Trace ids only, and only of requests that were sampled; knows nothing of who scrapes them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

import msgspec

from prefold.measurement.record import RequestOutcome, RequestRecord


class Exemplar(msgspec.Struct, frozen=True):
    trace_id: str
    seconds: float


class Exemplars:
    """By model and backend. Mutable."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Those of the histogram: they ascend and are inclusive."""
        self._bounds = bounds
        self._latest: dict[tuple[str, str], dict[int, Exemplar]] = {}

    def add(self, record: RequestRecord) -> None:
        """Of a request whose trace is known."""
        seconds = record.ttft_s
        if seconds is None or record.outcome is not RequestOutcome.OK:
            return
        held = self._latest.setdefault((record.model, record.backend), {})
        held[bisect_left(self._bounds, seconds)] = Exemplar(record.trace_id, seconds)

    def of(self, model: str, backend: str) -> Mapping[int, Exemplar]:
        """By the number of the bucket."""
        return self._latest.get((model, backend), {})
