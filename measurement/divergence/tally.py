"""Where prompts part from earlier ones, summed up: by template, position and kind. For the metrics
and the report; from records, so that it holds for all workers together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from prefold.measurement.divergence.record import Divergence, Kind

MAX_ROWS = 1024
"""Beyond, templates that are new are counted together, as the template ""."""
SHOWN_ROWS = 50


class DivergenceRow(msgspec.Struct, frozen=True, kw_only=True):
    """`position`: the lower bound of a range up to its double. `share`: of the requests that were
    looked at. Tokens as in Divergence; `lost_tokens` is the sum over them."""

    template: str
    position: int
    kind: Kind
    requests: int
    share: float
    lost_tokens: int


class DivergenceReport(msgspec.Struct, frozen=True, kw_only=True):
    """Of the requests that were looked at, which are a sample. `alike`: that parted from none.
    `rows`: those that lost most first."""

    looked_at: int
    alike: int
    rows: list[DivergenceRow]


def position_range(position: int) -> int:
    """Its lower bound: 0, or a power of two from 16 on."""
    return 0 if position < 16 else 1 << (position.bit_length() - 1)


class DivergenceTally:
    """Mutable."""

    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        self._max_rows = max_rows
        self._counts: dict[tuple[str, int, Kind], list[int]] = {}
        self.looked_at = 0
        self.alike = 0

    def add(self, one: Divergence) -> None:
        self.looked_at += 1
        if one.kind is None:
            self.alike += 1
            return
        key = one.template, position_range(one.position), one.kind
        if key not in self._counts and len(self._counts) >= self._max_rows:
            key = "", key[1], key[2]
        counted = self._counts.setdefault(key, [0, 0])
        counted[0] += 1
        counted[1] += one.lost

    def by_kind(self) -> dict[Kind, tuple[int, int]]:
        """Requests and lost tokens."""
        made: dict[Kind, tuple[int, int]] = {}
        for (_, _, kind), (requests, lost) in self._counts.items():
            before = made.get(kind, (0, 0))
            made[kind] = before[0] + requests, before[1] + lost
        return made

    def report(self, most: int = SHOWN_ROWS) -> DivergenceReport:
        rows = [
            DivergenceRow(
                template=template,
                position=position,
                kind=kind,
                requests=requests,
                share=requests / self.looked_at,
                lost_tokens=lost,
            )
            for (template, position, kind), (requests, lost) in self._counts.items()
        ]
        rows.sort(key=lambda row: (-row.lost_tokens, -row.requests, row.template, row.position))
        return DivergenceReport(looked_at=self.looked_at, alike=self.alike, rows=rows[:most])


class DivergenceCollector(Collector):
    """No samples where nothing was looked at."""

    def __init__(self, tally: Callable[[], DivergenceTally]) -> None:
        self._tally = tally

    def collect(self) -> Iterator[Metric]:
        tally = self._tally()
        looked = CounterMetricFamily(
            "prefold_divergence_sampled_requests",
            "Requests whose prompt was compared with recent ones",
        )
        if tally.looked_at:
            looked.add_metric((), tally.looked_at)
        parted = CounterMetricFamily(
            "prefold_prefix_divergences",
            "Of them, those that parted from a prompt that begins alike, by what stands there",
            labels=("kind",),
        )
        lost = CounterMetricFamily(
            "prefold_divergence_lost_tokens",
            "Tokens that both have behind what differs, up to where they differ again",
            labels=("kind",),
        )
        for kind, (requests, tokens) in tally.by_kind().items():
            parted.add_metric((kind,), requests)
            lost.add_metric((kind,), tokens)
        yield from (looked, parted, lost)
