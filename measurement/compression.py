"""What compression did, and how far its gate's predictions were off: from records, for the metrics.

The state of this process's compressor is asked for at each scrape; the rest is summed from records,
so that it holds for all workers together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from prefold.measurement.distribution import Histogram
from prefold.measurement.record import RequestRecord

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
ERROR_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class CompressorState(msgspec.Struct, frozen=True, kw_only=True):
    """Of one process, at the moment of a scrape. `chars_per_s` is None until it is known; `busy_s`
    are seconds of its compressors."""

    hits: int
    misses: int
    shared: int
    cache_bytes: int
    workers: int
    failures: int
    faults: Mapping[tuple[str, str], int]
    """By what failed (process, text) and kind."""
    waiting_chars: int
    chars_per_s: float | None
    busy_s: float


class Gains:
    """Sums over compressed requests whose first token was seen and predicted, in seconds."""

    __slots__ = ("measured", "predicted")

    def __init__(self) -> None:
        self.predicted = 0.0
        self.measured = 0.0


class CompressionTally:
    """Mutable."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, str]] = Counter()
        """By model, form and reason."""
        self.removed_tokens: Counter[str] = Counter()
        self.shadow_tokens: Counter[str] = Counter()
        self.gains: defaultdict[str, Gains] = defaultdict(Gains)
        self.errors: defaultdict[tuple[str, str], Histogram] = defaultdict(
            lambda: Histogram(ERROR_SECONDS)
        )
        """Of the predicted time to first token, by model and form."""
        self.seconds: defaultdict[tuple[str, str], Histogram] = defaultdict(
            lambda: Histogram(SECONDS)
        )
        """That requests spent here."""

    def add(self, record: RequestRecord) -> None:
        model, form = record.model, record.compression
        self.requests[model, form, record.compression_reason] += 1
        if record.encoded is not None and record.compressed is not None:
            self.seconds[model, form].add(record.compressed - record.encoded)
        if record.removed_tokens:
            self.removed_tokens[model] += record.removed_tokens
        if record.shadow_tokens:
            self.shadow_tokens[model] += record.shadow_tokens
        if record.predicted_token is None or not record.tokens:
            return
        first = record.tokens[0]
        self.errors[model, form].add(abs(first - record.predicted_token))
        if form == "compressed" and record.fallback_token is not None:
            gains = self.gains[model]
            gains.predicted += record.fallback_token - record.predicted_token
            gains.measured += record.fallback_token - first

    def report(self) -> dict[str, Any]:
        """By model, as the /report page shows it. The gains are of compressed streams whose TTFT
        was predicted (mode auto), in seconds; None where there were none."""
        models: dict[str, Any] = {}
        for (model, form, reason), count in self.requests.items():
            gains = self.gains.get(model)
            made = models.setdefault(
                model,
                {
                    "requests": {},
                    "removed_tokens": self.removed_tokens[model],
                    "shadow_tokens": self.shadow_tokens[model],
                    "predicted_gain_s": None if gains is None else round(gains.predicted, 3),
                    "measured_gain_s": None if gains is None else round(gains.measured, 3),
                },
            )
            made["requests"][f"{form}: {reason}"] = count
        return models


class CompressionCollector(Collector):
    def __init__(
        self, tally: CompressionTally, state: Callable[[], CompressorState | None]
    ) -> None:
        """Where there is no state, its metrics have no samples."""
        self._tally = tally
        self._state = state

    def collect(self) -> Iterator[Metric]:
        tally = self._tally
        requests = CounterMetricFamily(
            "prefold_compression_requests",
            "Requests whose prompt compression looked at, by the form that was sent, and why",
            labels=("model", "form", "reason"),
        )
        for labels, count in tally.requests.items():
            requests.add_metric(labels, count)
        yield requests
        for name, about, tokens in (
            ("removed", "Prompt tokens not sent, in the engine's own tokens", tally.removed_tokens),
            ("shadow", "Prompt tokens that would not have been sent", tally.shadow_tokens),
        ):
            family = CounterMetricFamily(
                f"prefold_compression_{name}_tokens", about, labels=("model",)
            )
            for model, count in tokens.items():
                family.add_metric((model,), count)
            yield family
        predicted = GaugeMetricFamily(
            "prefold_compression_predicted_gain_seconds",
            "Sum over compressed requests: TTFT as it came less TTFT as sent, both as predicted",
            labels=("model",),
        )
        measured = GaugeMetricFamily(
            "prefold_compression_measured_gain_seconds",
            "The same, less the TTFT that was measured",
            labels=("model",),
        )
        for model, gains in tally.gains.items():
            predicted.add_metric((model,), gains.predicted)
            measured.add_metric((model,), gains.measured)
        errors = HistogramMetricFamily(
            "prefold_compression_ttft_error_seconds",
            "How far the predicted TTFT of the form that was sent was off",
            labels=("model", "form"),
        )
        spent = HistogramMetricFamily(
            "prefold_compression_seconds",
            "What compression added to the time before the upstream call",
            labels=("model", "form"),
        )
        for times, by_kind in ((errors, tally.errors), (spent, tally.seconds)):
            for kind, seconds in by_kind.items():
                times.add_metric(kind, list(seconds.cumulative()), seconds.sum)
        yield from (predicted, measured, errors, spent)
        yield from _of_state(self._state())


def _of_state(state: CompressorState | None) -> Iterator[Metric]:
    segments = CounterMetricFamily(
        "prefold_compression_segments",
        "Texts looked up in the cache of compressed segments, and shared while under way",
        labels=("result",),
    )
    failures = CounterMetricFamily(
        "prefold_compression_worker_failures",
        "Times that a compressor's process ended, hung or could not start",
        labels=(),
    )
    busy = CounterMetricFamily(
        "prefold_compression_compressor_seconds",
        "That compressors computed, for requests and ahead of them",
        labels=(),
    )
    faults = CounterMetricFamily(
        "prefold_compression_faults",
        "Processes and texts that failed, by kind: a word, or the name of an exception's class",
        labels=("of", "kind"),
    )
    gauges = [
        GaugeMetricFamily(f"prefold_compression_{name}", about, labels=())
        for name, about in (
            ("cache_bytes", "Size of the cache of compressed segments"),
            ("workers", "Compressor processes that are ready"),
            ("waiting_chars", "Characters that wait for the compressor or are under way"),
            ("chars_per_second", "Learned speed of the compressor"),
        )
    ]
    if state is not None:
        for result, count in (
            ("hit", state.hits),
            ("miss", state.misses),
            ("shared", state.shared),
        ):
            segments.add_metric((result,), count)
        failures.add_metric((), state.failures)
        for labels, count in state.faults.items():
            faults.add_metric(labels, count)
        busy.add_metric((), state.busy_s)
        values = (state.cache_bytes, state.workers, state.waiting_chars, state.chars_per_s)
        for gauge, value in zip(gauges, values, strict=True):
            if value is not None:
                gauge.add_metric((), value)
    yield from (segments, failures, faults, busy, *gauges)
