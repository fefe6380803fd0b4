"""Every Prometheus name in one place, drawn from the books and from gauges when scraped.

Label values come from the configuration, from backends or from enums, never from a user's text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as exemplified
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar as Shown

from prefold.measurement.books import STAGES, Books, Kind, Tally
from prefold.measurement.compression import CompressionCollector, CompressorState
from prefold.measurement.distribution import Histogram
from prefold.measurement.divergence.tally import DivergenceCollector
from prefold.measurement.exemplars import Exemplar
from prefold.measurement.ledger.writer import LedgerFigures

Labels = tuple[str, ...]
TTFT = "prefold_ttft_seconds"
NO_EXEMPLARS: Mapping[int, Exemplar] = {}


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
    capacity_tokens: int | None = None
    """That its cache is believed to hold at most; None: not told."""
    prediction_error: float | None = None
    """Share of wrong tokens, the latest most; None: nothing was compared."""
    prefill_overhead_s: float | None = None
    """None: unknown, and not shown."""


class Metrics:
    """One registry of its own, so that several proxies may live in one process. `backends` and
    `waiting` (the length of the queue) are asked at each scrape."""

    def __init__(
        self,
        books: Books,
        backends: Callable[[], Iterable[BackendGauges]],
        waiting: Callable[[], int] = lambda: 0,
        ledger: Callable[[], LedgerFigures] | None = None,
        compressor: Callable[[], CompressorState | None] = lambda: None,
    ) -> None:
        self.backends = backends
        self.waiting = waiting
        self._registry = CollectorRegistry()
        self._registry.register(_BooksCollector(books))
        Gauge(
            "prefold_waiting_requests",
            "Requests that wait for a backend to have room",
            registry=self._registry,
        ).set_function(waiting)
        self._registry.register(_BackendCollector(backends))
        self._registry.register(_LedgerCollector(ledger))
        self._registry.register(CompressionCollector(books.compression, compressor))
        self._registry.register(DivergenceCollector(lambda: books.divergences))

    def add(self, collector: Collector) -> None:
        """More metrics, of a part that is not always there."""
        self._registry.register(collector)

    def exposition(self, *, openmetrics: bool = False) -> bytes:
        """As text for Prometheus, or as OpenMetrics, which has exemplars."""
        return (exemplified if openmetrics else generate_latest)(self._registry)


class _BooksCollector(Collector):
    def __init__(self, books: Books) -> None:
        self._books = books

    def collect(self) -> Iterator[Metric]:
        """In the order of the documentation. What was never counted is not shown as zero."""
        grouped = self._books.grouped
        yield _counter(
            "prefold_requests",
            "Requests by outcome",
            ("endpoint", "backend", "outcome"),
            grouped(lambda kind: (kind.endpoint, kind.backend, kind.outcome)),
            lambda tally: tally.requests,
        )
        yield _counter(
            "prefold_routing_decisions",
            "Routing decisions by reason and mode",
            ("backend", "reason", "mode"),
            grouped(lambda kind: (kind.backend, kind.reason, kind.mode) if kind.reason else None),
            lambda tally: tally.requests,
        )
        retries = CounterMetricFamily(
            "prefold_retries",
            "Attempts that were followed by another one, by the backend that failed",
            labels=("backend",),
        )
        for backend, count in self._books.retries.items():
            retries.add_metric((backend,), count)
        yield retries
        yield _counter(
            "prefold_documents_moved",
            "Documents of prompts that were sent in another place than they came in",
            ("model",),
            grouped(lambda kind: (kind.model,) if kind.model else None),
            lambda tally: tally.documents_moved or None,
        )
        answered = grouped(_answered)
        for name, about, value in TOKENS:
            yield _counter(name, about, ("model", "backend"), answered, value)
        predicted = grouped(_predicted)
        for name, about, value in PREDICTION:
            yield _counter(name, about, ("backend", "mode"), predicted, value)
        corrected = grouped(lambda kind: (kind.backend,) if kind.outcome == "ok" else None)
        for name, about, value in CORRECTION:
            yield _counter(name, about, ("backend",), corrected, value)
        for name, about, histogram in TIMES:
            family = HistogramMetricFamily(name, about, labels=("model", "backend"))
            for labels, tally in answered.items():
                known = self._books.exemplars.of(*labels) if name == TTFT else {}
                _add(family, labels, histogram(tally), known)
            yield family
        overhead = HistogramMetricFamily(
            "prefold_overhead_seconds",
            "Time in the proxy before the upstream call",
            labels=["stage"],
        )
        for tally in grouped(lambda kind: ()).values():
            for stage, seconds in zip(STAGES, tally.stages, strict=True):
                _add(overhead, (stage,), seconds)
        yield overhead


def _answered(kind: Kind) -> Labels | None:
    return (kind.model, kind.backend) if kind.outcome == "ok" and kind.model else None


def _predicted(kind: Kind) -> Labels | None:
    return (kind.backend, kind.mode) if kind.outcome == "ok" and kind.mode else None


def _counter(
    name: str,
    about: str,
    labels: Labels,
    groups: dict[Labels, Tally],
    value: Callable[[Tally], int | None],
) -> Metric:
    family = CounterMetricFamily(name, about, labels=labels)
    for group, tally in groups.items():
        counted = value(tally)
        if counted is not None:
            family.add_metric(group, counted)
    return family


def _add(
    family: HistogramMetricFamily,
    labels: Labels,
    seconds: Histogram,
    exemplars: Mapping[int, Exemplar] = NO_EXEMPLARS,
) -> None:
    if not seconds.count:
        return
    buckets: list[tuple[str, float] | tuple[str, float, Shown]] = list(seconds.cumulative())
    for number, one in exemplars.items():
        bound, count, *_ = buckets[number]
        buckets[number] = bound, count, Shown({"trace_id": one.trace_id}, one.seconds)
    family.add_metric(labels, buckets, seconds.sum)


def _if_reported(value: Callable[[Tally], int]) -> Callable[[Tally], int | None]:
    return lambda tally: value(tally) if tally.reported_requests else None


TOKENS: tuple[tuple[str, str, Callable[[Tally], int | None]], ...] = (
    (
        "prefold_prompt_tokens",
        "Prompt tokens of requests whose engine reported its cached tokens",
        _if_reported(lambda tally: tally.prompt_tokens),
    ),
    (
        "prefold_saved_prefill_tokens",
        "Prompt tokens not computed, as reported by the engine",
        _if_reported(lambda tally: tally.saved_tokens),
    ),
    (
        "prefold_unreported_requests",
        "Requests whose engine did not report cached tokens: their savings are unknown",
        lambda tally: tally.unreported_requests or None,
    ),
    (
        "prefold_expected_cached_tokens",
        "Cached tokens the index expected on the chosen backend",
        lambda tally: tally.expected_tokens,
    ),
    (
        "prefold_available_cached_tokens",
        "Cached tokens the index expected on the best backend",
        lambda tally: tally.available_tokens,
    ),
    (
        "prefold_prediction_error_tokens",
        "Sum of |expected - reported| cached tokens",
        _if_reported(lambda tally: tally.prediction_error_tokens),
    ),
)
PREDICTION: tuple[tuple[str, str, Callable[[Tally], int | None]], ...] = (
    (
        "prefold_overexpected_tokens",
        "Cached tokens that were expected and not reported",
        _if_reported(lambda tally: tally.overexpected_tokens),
    ),
    (
        "prefold_underexpected_tokens",
        "Cached tokens that were reported and not expected",
        _if_reported(lambda tally: tally.underexpected_tokens),
    ),
)
CORRECTION: tuple[tuple[str, str, Callable[[Tally], int | None]], ...] = (
    (
        "prefold_index_lost_tokens",
        "Tokens the index believed to be cached until a report showed otherwise",
        lambda tally: tally.lost_tokens or None,
    ),
    (
        "prefold_index_found_tokens",
        "Tokens the index had given up until a report showed otherwise",
        lambda tally: tally.found_tokens or None,
    ),
    (
        "prefold_caches_emptied",
        "Times that reports showed a backend's cache to have been emptied",
        lambda tally: tally.emptied or None,
    ),
)
TIMES: tuple[tuple[str, str, Callable[[Tally], Histogram]], ...] = (
    (
        TTFT,
        "Received to first content, reasoning or tool-call delta (prefill)",
        lambda tally: tally.ttft.histogram,
    ),
    (
        "prefold_itl_seconds",
        "Gaps between consecutive token events (decode)",
        lambda tally: tally.itl.histogram,
    ),
    (
        "prefold_e2e_seconds",
        "Received to last token event, or to the end of a body that is not streamed",
        lambda tally: tally.e2e.histogram,
    ),
)


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
        overhead = GaugeMetricFamily(
            "prefold_prefill_overhead_seconds",
            "Learned part of the time to first token that does not grow with the prompt",
            labels=("backend",),
        )
        error = GaugeMetricFamily(
            "prefold_prediction_error_ratio",
            "Wrong tokens over tokens expected or reported, the latest requests most",
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
            if backend.prefill_overhead_s is not None:
                overhead.add_metric((backend.backend,), backend.prefill_overhead_s)
            if backend.prediction_error is not None:
                error.add_metric((backend.backend,), backend.prediction_error)
            believed.add_metric((backend.backend,), backend.believed_tokens)
        yield from (state, mode, in_flight, queued, rate, overhead, error, believed)


class _LedgerCollector(Collector):
    """No samples where no ledger is kept."""

    def __init__(self, ledger: Callable[[], LedgerFigures] | None) -> None:
        self._ledger = ledger

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "prefold_ledger_requests",
            "Requests that the ledger was given: written, or dropped since it could not be written",
            labels=("result",),
        )
        waiting = GaugeMetricFamily(
            "prefold_ledger_waiting_requests", "Requests that are to be written to the ledger"
        )
        faulted = GaugeMetricFamily(
            "prefold_ledger_faulted", "1 while the ledger cannot be written"
        )
        if self._ledger is not None:
            figures = self._ledger()
            requests.add_metric(("written",), figures.written)
            requests.add_metric(("dropped",), figures.dropped)
            waiting.add_metric((), figures.waiting)
            faulted.add_metric((), figures.faulted)
        yield from (requests, waiting, faulted)
