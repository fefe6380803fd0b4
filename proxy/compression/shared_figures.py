"""What the metrics say of compressed segments in Redis, drawn when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from prefold.proxy.compression.shared_segments import SharedSegments

ASKED = ("hit", "miss", "refused", "late", "unasked")
TOLD = ("written", "unwritten")


class SharedSegmentMetrics(Collector):
    def __init__(self, shared: SharedSegments) -> None:
        self._shared = shared

    def collect(self) -> Iterator[Metric]:
        counts = self._shared.counts
        yield GaugeMetricFamily(
            "prefold_compression_redis_up",
            "1 while Redis answers for compressed segments",
            value=int(self._shared.breaker.closed),
        )
        asked = CounterMetricFamily(
            "prefold_compression_redis_segments",
            "Texts that were not in memory, by what Redis had of them",
            labels=("result",),
        )
        values = (counts.hits, counts.misses, counts.refused, counts.late, counts.unasked)
        for result, count in zip(ASKED, values, strict=True):
            asked.add_metric((result,), count)
        told = CounterMetricFamily(
            "prefold_compression_redis_writes",
            "Texts compressed here, by whether Redis took what is kept of them",
            labels=("result",),
        )
        for result, count in zip(TOLD, (counts.written, counts.unwritten), strict=True):
            told.add_metric((result,), count)
        yield from (asked, told)
