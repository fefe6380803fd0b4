"""Our figures of requests beside aiperf's own of the same requests, metric by metric.

Both are under aiperf's definitions; the clocks differ. aiperf's starts before the request is on its
way to the proxy and stops when its client has read a chunk; ours starts when the proxy has the
request's head and stops when it has read the chunk. So its times are a little longer.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from prefold.measurement.definitions import formulas
from prefold.measurement.definitions.profile import Samples, View
from prefold.measurement.definitions.profiles import AIPERF
from prefold.measurement.definitions.timeline import Timeline

WITHIN_MS = 20.0
WITHIN_SHARE = 0.05
"""The median request's difference is no more than the larger of the two; counts are equal."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Values of the requests that both know, in the same order; `unit` is ms or tokens."""

    name: str
    unit: str
    ours: Sequence[float]
    theirs: Sequence[float]

    @property
    def differences(self) -> list[float]:
        return [ours - theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]

    @property
    def agrees(self) -> bool:
        """And something was compared at all."""
        if not self.ours:
            return False
        if self.unit == "tokens":
            return list(self.ours) == list(self.theirs)
        typical = statistics.median(map(abs, self.differences))
        return typical <= max(WITHIN_MS, WITHIN_SHARE * statistics.median(self.theirs))


def _tokens(view: View) -> Samples:
    return () if view.output_tokens is None else (float(view.output_tokens),)


METRICS: tuple[tuple[str, str, Callable[[View], Samples]], ...] = (
    ("time_to_first_token", "ms", formulas.first),
    ("time_to_second_token", "ms", formulas.second_after_first),
    ("request_latency", "ms", formulas.last),
    ("inter_token_latency", "ms", formulas.decode_to_last),
    ("output_sequence_length", "tokens", _tokens),
)


def compare(
    ours: Mapping[str, Timeline], theirs: Mapping[str, Mapping[str, float]]
) -> list[Compared]:
    """By request id; what only one side knows is left out."""
    made = []
    for name, unit, formula in METRICS:
        pairs = []
        for request in sorted(ours.keys() & theirs.keys()):
            samples = formula(AIPERF.view(ours[request]))
            told = theirs[request].get(name)
            if samples and told is not None:
                pairs.append((samples[0] * (1000 if unit == "ms" else 1), told))
        made.append(Compared(name, unit, [own for own, _ in pairs], [told for _, told in pairs]))
    return made
