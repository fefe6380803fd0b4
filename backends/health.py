"""The health of one backend: a pure state machine fed by active probes and by passive evidence.

A passing probe alone never re-admits a backend that fails real requests: an engine that is stuck
still answers /health. After an ejection one trial request at a time decides (half-open). A backend
that returns, to a fleet at work and with a cold KV cache, is given its share by degrees.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

SILENT_PROBES_TO_DOWN = 2
COLD = 0.1
"""Of its share, what a backend is trusted with the moment it returns."""


class Outcome(StrEnum):
    """What one exchange says about the backend."""

    SUCCESS = "success"  # an answer, a client error (4xx) included: the backend did its job
    NEUTRAL = "neutral"  # backpressure (429, 503) or a client that left: no evidence
    FAILURE = "failure"  # other 5xx, transport faults, time-outs, cut bodies


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRules:
    """Ejection lasts `eject_s` seconds, doubled at each further one, at most `eject_max_s`. A
    backend that returns has its full share again after `slow_start_s`."""

    failures_to_eject: int = 3
    eject_s: float = 5.0
    eject_max_s: float = 60.0
    slow_start_s: float = 10.0


class Health:
    """Mutable. Times are seconds of one monotonic clock, passed in."""

    def __init__(self, rules: HealthRules) -> None:
        self._rules = rules
        self._returns = False
        """Its next first answer is no first start: others are at work, and have their caches."""
        self._returned_at = -math.inf
        self.reachable = False
        self.gone = True
        """It was seen to be away since it last answered, so it may have restarted."""
        self._silent_probes = 0
        self._failures = 0
        self._ejections = 0
        self._ejected_until = 0.0
        self._on_trial = False

    def usable(self, now: float) -> bool:
        if not self.reachable or now < self._ejected_until:
            return False
        return not (self._half_open and self._on_trial)

    @property
    def _half_open(self) -> bool:
        return self._ejections > 0

    def joins(self) -> None:
        """It is new to a fleet that is at work."""
        self._returns = True

    def warmth(self, now: float) -> float:
        """The share of its rate that it is to be taken for: from COLD to 1."""
        since = now - self._returned_at
        if since >= self._rules.slow_start_s:
            return 1.0
        return COLD + (1.0 - COLD) * max(since, 0.0) / self._rules.slow_start_s

    def probed(self, now: float) -> None:
        """It answered, and is ready."""
        if self.gone and self._returns:
            self._returned_at = now
        self._returns = True
        self.reachable = True
        self.gone = False
        self._silent_probes = 0

    def down(self) -> None:
        """It says that it is not ready, or nothing listens there: until a probe succeeds."""
        self.reachable = False
        self.gone = True

    def silent(self) -> None:
        """A probe got no answer in time. One may be late on a busy machine, two are down."""
        self._silent_probes += 1
        if self._silent_probes >= SILENT_PROBES_TO_DOWN:
            self.reachable = False

    def started(self, now: float) -> bool:
        """Whether this request is the trial after an ejection; to be told to `ended`."""
        if not self._half_open or self._on_trial or now < self._ejected_until:
            return False
        self._on_trial = True
        return True

    def ended(self, outcome: Outcome, now: float, *, trial: bool) -> None:
        """Call once for each `started`. A request from before the ejection is no trial."""
        if trial:
            self._on_trial = False
        if outcome is Outcome.SUCCESS:
            if self._half_open:
                self._returned_at = max(now, self._ejected_until)
            self._failures = 0
            self._ejections = 0
        elif outcome is Outcome.FAILURE:
            self._failures += 1
            if trial or self._failures >= self._rules.failures_to_eject:
                self._eject(now)

    def _eject(self, now: float) -> None:
        seconds = min(self._rules.eject_s * 2**self._ejections, self._rules.eject_max_s)
        # Requests of one burst fail together; they are one ejection, not a growing series.
        if now >= self._ejected_until:
            self._ejected_until = now + seconds
            self._ejections = min(self._ejections + 1, 16)
        self._failures = 0

    def state(self, now: float) -> str:
        if not self.reachable:
            return "down"
        if now < self._ejected_until:
            return "ejected"
        return "half_open" if self._half_open else "up"

    def __repr__(self) -> str:
        return f"<Health reachable={self.reachable} failures={self._failures}>"
