"""When a request may be tried once more, elsewhere. Pure; times are seconds of one clock.

The product of all retries counts: clients try three times, each of which may become two attempts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

MAX_ATTEMPTS = 2
MIN_RETRIES_PER_S = 1.0
BURST = 10.0
HARM_TO_REFUSE = 2
REMEMBER_S = 60.0
MAX_SUSPECTS = 4096


class RetryBudget:
    """Second attempts as a share of requests, so that an outage is not doubled by retries (after
    Finagle and Envoy): each request earns `ratio` of one, each second a whole one; ten at most are
    saved."""

    def __init__(self, ratio: float, now: float) -> None:
        self._ratio = ratio
        self._saved = BURST
        self._at = now

    def earn(self, now: float) -> None:
        """Once for each request."""
        earned = self._ratio + (now - self._at) * MIN_RETRIES_PER_S
        self._saved = min(self._saved + earned, BURST)
        self._at = now

    def spend(self) -> bool:
        """False: no second attempt now."""
        if self._saved < 1.0:
            return False
        self._saved -= 1.0
        return True


class Suspects:
    """Requests under which a backend broke. One that broke two is not sent to a third, whoever
    sends it again; an answer clears it. Keys are digests, made only while there are suspects."""

    def __init__(self, digest: Callable[[bytes], bytes]) -> None:
        self._digest = digest
        self._harmed: OrderedDict[bytes, tuple[float, set[str]]] = OrderedDict()

    def refused(self, body: bytes, now: float) -> bool:
        if not self._harmed:
            return False
        self._forget(now)
        entry = self._harmed.get(self._digest(body)) if self._harmed else None
        return entry is not None and len(entry[1]) >= HARM_TO_REFUSE

    def harmed(self, body: bytes, backend: str, now: float) -> None:
        """The backend's connection broke under this request, after it was sent."""
        key = self._digest(body)
        _, backends = self._harmed.pop(key, (now, set()))
        self._harmed[key] = (now, backends | {backend})
        if len(self._harmed) > MAX_SUSPECTS:
            self._harmed.popitem(last=False)

    def answered(self, body: bytes) -> None:
        if self._harmed:
            self._harmed.pop(self._digest(body), None)

    def _forget(self, now: float) -> None:
        """The oldest come first."""
        while self._harmed:
            oldest = next(iter(self._harmed))
            if now - self._harmed[oldest][0] < REMEMBER_S:
                return
            del self._harmed[oldest]
