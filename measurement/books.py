"""The running totals of finished requests, from which every figure that is shown is drawn.

A request is added once, to the tally of its kind; Prometheus and the report group the tallies when
they are asked. Savings are claimed from what engines reported; requests whose engine reported
nothing are counted as unknown, beside the claim and not in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from prefold.measurement.compression import CompressionTally
from prefold.measurement.distribution import Distribution, Histogram
from prefold.measurement.divergence.tally import DivergenceTally
from prefold.measurement.exemplars import Exemplars
from prefold.measurement.record import RequestOutcome, RequestRecord
from prefold.measurement.sketch import Sketch

SECONDS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(20.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
"""Of TTFT and whole answers: from a cached short prompt to the longest that a backend is waited
for. No bound is more than 2.5 times the one before, which bounds the error of a quantile."""
ITL_SECONDS = (0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Fine around a comfortable reading speed, and on to the stalls that others' prefill makes."""
STAGE_SECONDS = (5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.025, 0.1)
STAGES = ("parse", "encode", "match", "choose")


class Kind(NamedTuple):
    """What requests are told apart by: names of the configuration, of backends and of enums, so
    there are few."""

    endpoint: str
    model: str
    backend: str
    mode: str
    reason: str
    outcome: str
    arm: str = ""


class Compared:
    """The three kinds of hit on the same requests: those for which all are known, so that shares of
    `prompt_tokens` may stand side by side. Mutable."""

    __slots__ = (
        "available_tokens",
        "expected_tokens",
        "prompt_tokens",
        "reported_tokens",
        "requests",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.prompt_tokens = 0
        self.available_tokens = 0
        self.expected_tokens = 0
        self.reported_tokens = 0

    def add(self, prompt: int, available: int, expected: int, reported: int) -> None:
        self.requests += 1
        self.prompt_tokens += prompt
        self.available_tokens += available
        self.expected_tokens += expected
        self.reported_tokens += reported

    def merge(self, other: Compared) -> None:
        self.requests += other.requests
        self.prompt_tokens += other.prompt_tokens
        self.available_tokens += other.available_tokens
        self.expected_tokens += other.expected_tokens
        self.reported_tokens += other.reported_tokens


class Tally:
    """Sums over requests of one kind, or of several that were merged. Mutable. Tokens, TTFT, ITL
    and end-to-end times are those of requests that ended well: a fast refusal must not make
    latencies look good."""

    __slots__ = (
        "available_tokens",
        "compared",
        "documents_moved",
        "e2e",
        "emptied",
        "expected_tokens",
        "found_tokens",
        "itl",
        "lost_tokens",
        "output_tokens",
        "overexpected_tokens",
        "overhead",
        "prompt_tokens",
        "reported_requests",
        "requests",
        "saved_tokens",
        "stages",
        "ttft",
        "underexpected_tokens",
        "unreported_requests",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.reported_requests = 0
        self.unreported_requests = 0
        self.prompt_tokens = 0
        """Of the reported requests, as are the next three."""
        self.saved_tokens = 0
        self.overexpected_tokens = 0
        """Of them, expected beyond what was reported; the next one, the other way."""
        self.underexpected_tokens = 0
        self.lost_tokens = 0
        """Corrections of the index: as in the record, as are the next two."""
        self.found_tokens = 0
        self.emptied = 0
        self.expected_tokens = 0
        self.available_tokens = 0
        self.output_tokens = 0
        self.compared = Compared()
        self.documents_moved = 0
        """Of all requests: documents that were sent in another place than they came in."""
        self.ttft = Distribution(SECONDS)
        self.itl = Distribution(ITL_SECONDS)
        self.e2e = Distribution(SECONDS)
        self.overhead = Sketch()
        """All stages of a request together."""
        self.stages = [Histogram(STAGE_SECONDS) for _ in STAGES]

    def add(self, record: RequestRecord) -> None:
        self.requests += 1
        self.documents_moved += record.documents_moved
        last = record.received
        # Time spent on compression is no time of matching.
        starts = (last, record.parsed, record.compressed or record.encoded, record.matched)
        ends = (record.parsed, record.encoded, record.matched, record.chosen)
        for stage, start, end in zip(self.stages, starts, ends, strict=True):
            if start is None or end is None:
                break
            stage.add(end - start)
            last = end
        else:
            self.overhead.add(last - record.received)
        if record.outcome is RequestOutcome.OK:
            self._add_tokens(record)
            self._add_times(record)

    def _add_tokens(self, record: RequestRecord) -> None:
        reported, expected = record.reported_tokens, record.expected_tokens or 0
        self.output_tokens += record.output_tokens or 0
        self.available_tokens += record.available_tokens or 0
        self.expected_tokens += expected
        if record.prompt_tokens is None or reported is None:
            self.unreported_requests += 1
            return
        self.reported_requests += 1
        self.prompt_tokens += record.prompt_tokens
        self.saved_tokens += reported
        if record.expected_tokens is not None:
            self.compared.add(
                record.prompt_tokens, record.available_tokens or 0, expected, reported
            )
            self.overexpected_tokens += max(expected - reported, 0)
            self.underexpected_tokens += max(reported - expected, 0)
        self.lost_tokens += record.lost_tokens
        self.found_tokens += record.found_tokens
        self.emptied += record.emptied

    @property
    def prediction_error_tokens(self) -> int:
        """Sum of |expected - reported|."""
        return self.overexpected_tokens + self.underexpected_tokens

    def _add_times(self, record: RequestRecord) -> None:
        tokens = record.tokens
        last = record.end
        if tokens:
            before = last = tokens[0]
            self.ttft.add(last - record.received)
            gap = self.itl.add
            for last in tokens[1:]:
                gap(last - before)
                before = last
        if last is not None:
            self.e2e.add(last - record.received)

    def merge(self, other: Tally) -> None:
        self.requests += other.requests
        self.reported_requests += other.reported_requests
        self.unreported_requests += other.unreported_requests
        self.prompt_tokens += other.prompt_tokens
        self.saved_tokens += other.saved_tokens
        self.overexpected_tokens += other.overexpected_tokens
        self.underexpected_tokens += other.underexpected_tokens
        self.lost_tokens += other.lost_tokens
        self.found_tokens += other.found_tokens
        self.emptied += other.emptied
        self.expected_tokens += other.expected_tokens
        self.available_tokens += other.available_tokens
        self.output_tokens += other.output_tokens
        self.compared.merge(other.compared)
        self.documents_moved += other.documents_moved
        self.ttft.merge(other.ttft)
        self.itl.merge(other.itl)
        self.e2e.merge(other.e2e)
        self.overhead.merge(other.overhead)
        for stage, more in zip(self.stages, other.stages, strict=True):
            stage.merge(more)


class Books:
    """One for each process. Mutable."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, ...], Tally] = {}
        self.retries: Counter[str] = Counter()
        """Attempts that were followed by another one, by the backend that failed."""
        self.compression = CompressionTally()
        self.divergences = DivergenceTally()
        self.exemplars = Exemplars(SECONDS)
        """Of TTFT."""

    def add(self, record: RequestRecord) -> None:
        kind = (
            record.endpoint,
            record.model,
            record.backend,
            record.mode,
            record.reason,
            record.outcome,
            record.arm or "",
        )
        tally = self._tallies.get(kind)
        if tally is None:
            tally = self._tallies[kind] = Tally()
        tally.add(record)
        if record.failed_backends:
            self.retries.update(record.failed_backends)
        if record.compression:
            self.compression.add(record)
        if record.divergence is not None:
            self.divergences.add(record.divergence)
        if record.trace_id:
            self.exemplars.add(record)

    def __iter__(self) -> Iterator[tuple[Kind, Tally]]:
        for kind, tally in self._tallies.items():
            yield Kind(*kind), tally

    def grouped(
        self, key: Callable[[Kind], tuple[str, ...] | None]
    ) -> dict[tuple[str, ...], Tally]:
        """Merged by what `key` makes of each kind; None leaves it out."""
        groups: dict[tuple[str, ...], Tally] = {}
        for kind, tally in self:
            labels = key(kind)
            if labels is not None:
                groups.setdefault(labels, Tally()).merge(tally)
        return groups
