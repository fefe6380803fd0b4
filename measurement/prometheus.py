"""Every Prometheus name in one place, fed by finished request records and by gauges read at scrape.

Label values come from the configuration, from backends or from enums, never from a user's text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from prefold.measurement.record import RequestOutcome, RequestRecord
from prefold.measurement.series import Counters, Histograms, Labels

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
ITL_SECONDS = (0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 2.5)
STAGE_SECONDS = (5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.025, 0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendGauges:
    """One backend's state at the moment of a scrape."""

    backend: str
    state: str
    mode: str
    in_flight: int
    queued_tokens: int
    prefill_tokens_per_s: float
    believed_tokens: int


class Metrics:
    """One registry of its own, so that several proxies may live in one process. `backends` and
    `waiting` (the length of the queue) are asked at each scrape."""

    def __init__(
        self,
        backends: Callable[[], Iterable[BackendGauges]],
        waiting: Callable[[], int] = lambda: 0,
    ) -> None:
        model = ("model", "backend")
        self.requests = Counters(
            "prefold_requests", "Requests by outcome", ("endpoint", "backend", "outcome")
        )
        self.decisions = Counters(
            "prefold_routing_decisions",
            "Routing decisions by reason and mode",
            ("backend", "reason", "mode"),
        )
        self.retries = Counters(
            "prefold_retries",
            "Attempts that were followed by another one, by the backend that failed",
            ("backend",),
        )
        self.prompt_tokens = Counters(
            "prefold_prompt_tokens",
            "Prompt tokens of requests whose engine reported its cached tokens",
            model,
        )
        self.saved_tokens = Counters(
            "prefold_saved_prefill_tokens",
            "Prompt tokens not computed, as reported by the engine",
            model,
        )
        self.unreported = Counters(
            "prefold_unreported_requests",
            "Requests whose engine did not report cached tokens: their savings are unknown",
            model,
        )
        self.expected_tokens = Counters(
            "prefold_expected_cached_tokens",
            "Cached tokens the index expected on the chosen backend",
            model,
        )
        self.available_tokens = Counters(
            "prefold_available_cached_tokens",
            "Cached tokens the index expected on the best backend",
            model,
        )
        self.prediction_error = Counters(
            "prefold_prediction_error_tokens",
            "Sum of |expected - reported| cached tokens",
            model,
        )
        self.ttft = Histograms(
            "prefold_ttft_seconds",
            "Received to first content, reasoning or tool-call delta (prefill)",
            model,
            SECONDS,
        )
        self.itl = Histograms(
            "prefold_itl_seconds",
            "Gaps between consecutive token events (decode)",
            model,
            ITL_SECONDS,
        )
        self.e2e = Histograms(
            "prefold_e2e_seconds",
            "Received to last token event, or to the end of a body that is not streamed",
            model,
            SECONDS,
        )
        self.overhead = Histograms(
            "prefold_overhead_seconds",
            "Time in the proxy before the upstream call",
            ("stage",),
            STAGE_SECONDS,
        )
        self._registry = CollectorRegistry()
        self._registry.register(_SeriesCollector(self))
        Gauge(
            "prefold_waiting_requests",
            "Requests that wait for a backend to have room",
            registry=self._registry,
        ).set_function(waiting)
        self._registry.register(_BackendCollector(backends))

    def observe(self, record: RequestRecord) -> None:
        self.requests.inc((record.endpoint, record.backend, record.outcome))
        for stage, seconds in record.stages_s():
            self.overhead.observe((stage,), seconds)
        if record.reason:
            self.decisions.inc((record.backend, record.reason, record.mode))
        for backend in record.failed_backends:
            self.retries.inc((backend,))
        if record.outcome is RequestOutcome.OK and record.model:
            labels = (record.model, record.backend)
            self._observe_tokens(labels, record)
            self._observe_times(labels, record)

    def _observe_tokens(self, labels: Labels, record: RequestRecord) -> None:
        self.expected_tokens.inc(labels, record.expected_tokens or 0)
        self.available_tokens.inc(labels, record.available_tokens or 0)
        if record.prompt_tokens is None or record.reported_tokens is None:
            self.unreported.inc(labels)
            return
        self.prompt_tokens.inc(labels, record.prompt_tokens)
        self.saved_tokens.inc(labels, record.reported_tokens)
        if record.expected_tokens is not None:
            error = abs(record.expected_tokens - record.reported_tokens)
            self.prediction_error.inc(labels, error)

    def _observe_times(self, labels: Labels, record: RequestRecord) -> None:
        if record.ttft_s is not None:
            self.ttft.observe(labels, record.ttft_s)
        if record.e2e_s is not None:
            self.e2e.observe(labels, record.e2e_s)
        gaps = record.itl_s
        if gaps:
            self.itl.observe(labels, *gaps)

    def series(self) -> tuple[Counters | Histograms, ...]:
        """In the order of the documentation."""
        return (
            self.requests,
            self.decisions,
            self.retries,
            self.prompt_tokens,
            self.saved_tokens,
            self.unreported,
            self.expected_tokens,
            self.available_tokens,
            self.prediction_error,
            self.ttft,
            self.itl,
            self.e2e,
            self.overhead,
        )

    def exposition(self) -> bytes:
        return generate_latest(self._registry)


class _SeriesCollector(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        for one in self._metrics.series():
            yield one.collect()


class _BackendCollector(Collector):
    """Gauges of state that lives elsewhere, read when scraped instead of kept in step."""

    def __init__(self, backends: Callable[[], Iterable[BackendGauges]]) -> None:
        self._backends = backends

    def collect(self) -> Iterator[GaugeMetricFamily]:
        state = GaugeMetricFamily(
            "prefold_backend_state", "1 for the state it is in", labels=("backend", "state")
        )
        mode = GaugeMetricFamily(
            "prefold_backend_mode", "1 for the routing mode it is in", labels=("backend", "mode")
        )
        in_flight = GaugeMetricFamily(
            "prefold_in_flight_requests", "Requests leased now", labels=("backend",)
        )
        queued = GaugeMetricFamily(
            "prefold_queued_prefill_tokens",
            "Uncached prompt tokens of leased requests before their first token",
            labels=("backend",),
        )
        rate = GaugeMetricFamily(
            "prefold_prefill_tokens_per_second",
            "Learned rate of prefill, uncached tokens",
            labels=("backend",),
        )
        believed = GaugeMetricFamily(
            "prefold_believed_cached_tokens",
            "Tokens the index believes the backend holds",
            labels=("backend",),
        )
        for backend in self._backends():
            state.add_metric((backend.backend, backend.state), 1)
            mode.add_metric((backend.backend, backend.mode), 1)
            in_flight.add_metric((backend.backend,), backend.in_flight)
            queued.add_metric((backend.backend,), backend.queued_tokens)
            rate.add_metric((backend.backend,), backend.prefill_tokens_per_s)
            believed.add_metric((backend.backend,), backend.believed_tokens)
        yield from (state, mode, in_flight, queued, rate, believed)
