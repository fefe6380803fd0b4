"""What a group's rows add up to, and the figures of it. Unknown is counted apart, never as zero."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping

import msgspec

from prefold.measurement.benefit.columns import Columns
from prefold.measurement.benefit.compressing import Compressing, Compression
from prefold.measurement.benefit.prefill import Rate, SavedSeconds, saved_seconds
from prefold.measurement.benefit.timelines import CLIENT_GONE, OK, gaps_known, timeline_of
from prefold.measurement.definitions.formulas import decode_to_last, first, last
from prefold.measurement.definitions.profile import Profile
from prefold.measurement.definitions.profiles import PREFOLD
from prefold.measurement.definitions.summary import Spread, spread
from prefold.measurement.definitions.timeline import Timeline
from prefold.measurement.ledger.reader import LedgerRow

GAPS = frozenset(("gap_ms", "gap_mean_ms", "gap_max_ms", "inter_chunk_ms", "itl_ms", "ttst_ms"))
"""Metrics that may be taken from single gaps: not told where those were not kept."""
GOODPUT = {"ttft": first, "tpot": decode_to_last, "e2e": last}
"""What may be limited, as `prefold` defines it."""


class Savings(msgspec.Struct, frozen=True, kw_only=True):
    """Prompt tokens that were not computed, as engines reported; of the `requests` they did so for.
    All None: for none. `unreported_requests` are answered ones whose savings are unknown."""

    requests: int
    unreported_requests: int
    prompt_tokens: int | None
    saved_tokens: int | None
    share: float | None
    prefill: SavedSeconds | None


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """Cached tokens on the chosen backend, by our index, against those reported; of the `requests`
    for which both are known. `error_tokens` is the sum of absolute differences."""

    requests: int
    expected_tokens: int
    reported_tokens: int
    error_tokens: int


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """`failed` are requests without an answer, but for clients that left; `goodput` is the share of
    answers within all limits among all requests, those of clients that left not counted."""

    name: str
    requests: int
    conversations: int
    without_conversation: int
    outcomes: dict[str, int]
    backends: dict[str, int]
    """Requests by the backend that answered, or was tried last."""
    failed: int
    streamed: int
    output_tokens: int | None
    savings: Savings
    prediction: Prediction | None
    compression: Compression | None
    goodput: float | None
    metrics: dict[str, Spread]


class Tally:
    """Mutable."""

    def __init__(self, name: str, profile: Profile, limits_ms: Mapping[str, float]) -> None:
        self.name = name
        self.columns = Columns(profile)
        self._profile = profile
        self._limits = limits_ms
        self._metrics = [metric for metric in profile.metrics if metric.unit == "ms"]
        self._samples = {metric.name: array("d") for metric in self._metrics}
        self._outcomes: Counter[str] = Counter()
        self._backends: Counter[str] = Counter()
        self._conversations: set[int] = set()
        self._without_conversation = 0
        self._streamed = 0
        self._output: list[int] = []
        self._reported = self._unreported = self._prompt = 0
        self._saved: Counter[str] = Counter()
        self._predicted: list[tuple[int, int]] = []
        self._compressing = Compressing()
        self._good = 0

    def add(self, row: LedgerRow, conversation: int, unit: int) -> None:
        """`unit`: the number of what was drawn as a whole, the conversation or a time slice; -1 for
        either: of none."""
        timeline = timeline_of(row)
        view = self._profile.view(timeline)
        self.columns.add(row, view, unit)
        self._conversations.add(conversation)
        self._outcomes[row.outcome] += 1
        if row.backend is not None:
            self._backends[row.backend] += 1
        self._without_conversation += conversation < 0
        self._streamed += row.streamed
        if row.outcome != OK:
            return
        gaps = gaps_known(row)
        for metric in self._metrics:
            if gaps or metric.name not in GAPS:
                times = 1 if metric.weight is None else metric.weight(view)
                for sample in metric.of(view):
                    self._samples[metric.name].extend([sample * 1000] * times)
        if row.output_tokens is not None:
            self._output.append(row.output_tokens)
        self._good += bool(self._limits) and within(timeline, self._limits)
        self._add_prompt(row)

    def _add_prompt(self, row: LedgerRow) -> None:
        if row.reported_tokens is None or row.prompt_tokens is None:
            self._unreported += 1
        else:
            self._reported += 1
            self._prompt += row.prompt_tokens
            self._saved[row.backend or ""] += row.reported_tokens
        if row.reported_tokens is not None and row.expected_tokens is not None:
            self._predicted.append((row.expected_tokens, row.reported_tokens))
        self._compressing.add(row)

    def figures(self, rates: Mapping[str, Rate]) -> Group:
        counted = self._outcomes.total() - self._outcomes[CLIENT_GONE]
        return Group(
            name=self.name,
            requests=len(self.columns),
            conversations=len(self._conversations - {-1}),
            without_conversation=self._without_conversation,
            outcomes=dict(sorted(self._outcomes.items())),
            backends=dict(sorted(self._backends.items())),
            failed=counted - self._outcomes[OK],
            streamed=self._streamed,
            output_tokens=sum(self._output) if self._output else None,
            savings=self._savings(rates),
            prediction=self._prediction(),
            compression=self._compressing.figures(),
            goodput=self._good / counted if self._limits and counted else None,
            metrics={
                metric.name: spread(
                    self._samples[metric.name], unit="ms", definition=metric.definition
                )
                for metric in self._metrics
            },
        )

    def _savings(self, rates: Mapping[str, Rate]) -> Savings:
        saved = self._saved.total()
        known = self._reported > 0
        return Savings(
            requests=self._reported,
            unreported_requests=self._unreported,
            prompt_tokens=self._prompt if known else None,
            saved_tokens=saved if known else None,
            share=saved / self._prompt if self._prompt else None,
            prefill=saved_seconds(self._saved, rates) if known else None,
        )

    def _prediction(self) -> Prediction | None:
        if not self._predicted:
            return None
        return Prediction(
            requests=len(self._predicted),
            expected_tokens=sum(expected for expected, _ in self._predicted),
            reported_tokens=sum(reported for _, reported in self._predicted),
            error_tokens=sum(abs(expected - reported) for expected, reported in self._predicted),
        )


def within(timeline: Timeline, limits_ms: Mapping[str, float]) -> bool:
    """What is not defined for an answer, as its TTFT where it was not streamed, limits nothing."""
    view = PREFOLD.view(timeline)
    return all(
        sample * 1000 <= ms for name, ms in limits_ms.items() for sample in GOODPUT[name](view)
    )
