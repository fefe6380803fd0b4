"""What the metrics say of other replicas and of Redis, drawn when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from prefold.proxy.replicas.inbox import Inbox
from prefold.proxy.replicas.link import Link


class ReplicaMetrics(Collector):
    def __init__(self, link: Link, inbox: Inbox, others: Callable[[], int]) -> None:
        """`others`: how many replicas are known to live beside this one."""
        self._link = link
        self._inbox = inbox
        self._others = others

    def collect(self) -> Iterator[Metric]:
        link, inbox = self._link, self._inbox
        yield GaugeMetricFamily(
            "prefold_replicas_redis_up",
            "1 while Redis can be written and read",
            value=int(link.breaker.closed),
        )
        yield GaugeMetricFamily(
            "prefold_replicas_others", "Other replicas that are known to live", value=self._others()
        )
        yield CounterMetricFamily(
            "prefold_replicas_sent_messages", "Messages that Redis took", value=link.outbox.sent
        )
        yield CounterMetricFamily(
            "prefold_replicas_received_messages",
            "Messages of other replicas",
            value=inbox.received,
        )
        yield CounterMetricFamily(
            "prefold_replicas_dropped_messages",
            "Messages that others will never see: too many waited for Redis",
            value=link.outbox.dropped,
        )
        yield CounterMetricFamily(
            "prefold_replicas_refused_entries",
            "Entries that could not be read: another secret, another version, or changed",
            value=inbox.refused,
        )
        yield GaugeMetricFamily(
            "prefold_replicas_waiting_bytes", "What waits for Redis", value=link.outbox.bytes
        )
        if inbox.lag_s is not None:
            yield GaugeMetricFamily(
                "prefold_replicas_lag_seconds",
                "From writing an entry to reading it back, of the last one",
                value=inbox.lag_s,
            )
