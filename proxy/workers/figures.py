"""What the parent shows of its workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import Gauge
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from prefold.measurement.books import Books
from prefold.measurement.ledger.writer import LedgerFigures
from prefold.measurement.prometheus import BackendGauges, Metrics
from prefold.proxy.workers.hub import Hub


class WorkerMetrics(Metrics):
    """And two of their own."""

    def __init__(
        self,
        hub: Hub,
        books: Books,
        backends: Callable[[], Iterable[BackendGauges]],
        waiting: Callable[[], int],
        ledger: Callable[[], LedgerFigures] | None = None,
    ) -> None:
        super().__init__(books, backends, waiting, ledger)
        Gauge(
            "prefold_workers", "Workers that tell how they are", registry=self._registry
        ).set_function(lambda: len(hub.statuses))
        self.add(_Lost(hub))


class _Lost(Collector):
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def collect(self) -> Iterable[CounterMetricFamily]:
        yield CounterMetricFamily(
            "prefold_lost_records",
            "Requests that are in no other metric: the parent did not read their records",
            value=self._hub.lost_records,
        )


def tokenizers_of(hub: Hub) -> dict[str, dict[str, int]]:
    """Sums over the workers, by model."""
    sums: dict[str, dict[str, int]] = {}
    for status in hub.statuses.values():
        for model, stats in status.tokenizers.items():
            into = sums.setdefault(model, {})
            for name, value in stats.items():
                into[name] = into.get(name, 0) + value
    return sums


def waiting_of(hub: Hub) -> int:
    return sum(status.waiting for status in hub.statuses.values())


def believed_of(hub: Hub, backend: str) -> int:
    """Tokens; all workers believe about the same, so the most that one of them does."""
    return max((status.believed.get(backend, 0) for status in hub.statuses.values()), default=0)


def capacity_of(hub: Hub, backend: str) -> int:
    """Likewise the most that one of them believes; 0 if nobody knows."""
    return max((status.capacities.get(backend, 0) for status in hub.statuses.values()), default=0)


def error_of(hub: Hub, backend: str) -> float | None:
    """Of prediction: the worst that one of them sees; None if nobody does."""
    errors = [status.errors.get(backend) for status in hub.statuses.values()]
    return max([error for error in errors if error is not None], default=None)
