"""The last hour in samples, for charts over time: sums of the books and loads at regular moments.

Samples are taken by the admin side; no request knows of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from prefold.measurement.books import Books
from prefold.measurement.prometheus import BackendGauges

INTERVAL_S = 5.0
KEPT = 720


class Sample(NamedTuple):
    """`at`: seconds since 1970. Loads at that moment, and totals since start: of the requests, of
    prompts on which engines reported, and of those for which all three kinds of hit are known."""

    at: float
    in_flight: int
    waiting: int
    requests: int
    answered: int
    prompt_tokens: int
    saved_tokens: int
    output_tokens: int
    compared_tokens: int
    available_tokens: int
    expected_tokens: int
    reported_tokens: int
    ttft_count: int
    ttft_s: float


class Series:
    """Mutable."""

    def __init__(self, kept: int = KEPT) -> None:
        self._samples: deque[Sample] = deque(maxlen=kept)

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)

    def columns(self) -> dict[str, list[float]]:
        """By the names of a sample's members, oldest first."""
        values = zip(*self._samples, strict=True) if self._samples else [()] * len(Sample._fields)
        return dict(zip(Sample._fields, map(list, values), strict=True))


def sample(books: Books, gauges: Iterable[BackendGauges], waiting: int, at: float) -> Sample:
    requests = answered = prompt = saved = output = 0
    compared = available = expected = reported = 0
    ttft_count, ttft_s = 0, 0.0
    for kind, tally in books:
        requests += tally.requests
        if kind.outcome != "ok":
            continue  # what did not end well has no tokens or times in the tally
        answered += tally.requests
        prompt += tally.prompt_tokens
        saved += tally.saved_tokens
        output += tally.output_tokens
        compared += tally.compared.prompt_tokens
        available += tally.compared.available_tokens
        expected += tally.compared.expected_tokens
        reported += tally.compared.reported_tokens
        ttft_count += tally.ttft.sketch.count
        ttft_s += tally.ttft.histogram.sum
    return Sample(
        at=at,
        in_flight=sum(one.in_flight for one in gauges),
        waiting=waiting,
        requests=requests,
        answered=answered,
        prompt_tokens=prompt,
        saved_tokens=saved,
        output_tokens=output,
        compared_tokens=compared,
        available_tokens=available,
        expected_tokens=expected,
        reported_tokens=reported,
        ttft_count=ttft_count,
        ttft_s=ttft_s,
    )
