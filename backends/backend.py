"""One LLM server as the proxy knows it: identity, limits, health, load, learned prefill rate."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from ssl import SSLContext

from prefold.backends.engine import Engine, EngineFacts
from prefold.backends.health import Health, HealthRules, Outcome


class Mode(StrEnum):
    """How well a backend's cache is known, best first. A drop is always visible."""

    FEEDBACK = "feedback"  # exact tokens, and the engine reports cached tokens
    APPROXIMATE = "approximate"  # tokenizer unknown or different: prompt bytes stand for tokens


class PrefillRate:
    """Uncached prompt tokens per second of prefill: a ratio of exponentially decayed sums.

    A ratio of sums weighs long prefills more than short ones, whose time is mostly overhead.
    """

    DECAY = 0.9
    MIN_TOKENS = 64  # below, fixed costs drown the rate

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0

    def observe(self, uncached_tokens: int, seconds: float) -> None:
        if uncached_tokens < self.MIN_TOKENS or seconds <= 0:
            return
        self._tokens = self.DECAY * self._tokens + uncached_tokens
        self._seconds = self.DECAY * self._seconds + seconds

    @property
    def tokens_per_s(self) -> float | None:
        """None until something was observed."""
        return self._tokens / self._seconds if self._seconds else None


class Backend:
    """Mutable state of one upstream; changed by the monitor (facts) and by leases (load)."""

    def __init__(
        self,
        *,
        name: str,
        url: str,
        headers: dict[str, str],
        engine: Engine | None,
        rules: HealthRules,
        ssl: SSLContext | None = None,
        pass_client_key: bool = False,
        max_in_flight: int = 512,
    ) -> None:
        self.name = name
        self.url = url
        self.headers = headers
        self.engine = engine
        self.ssl = ssl
        """For an https URL; None: its certificate is checked against the system's authorities."""
        self.pass_client_key = pass_client_key
        self.max_in_flight = max_in_flight
        self.health = Health(rules)
        self.facts: EngineFacts | None = None
        self.mode = Mode.APPROXIMATE
        self.mode_reason = "not probed yet"
        self.settled = False
        """The mode is a verdict, not the lack of one: a comparison that failed is tried again."""
        self.rate = PrefillRate()
        self.in_flight = 0
        self.queued_tokens = 0
        self.on_change: Callable[[], None] = _nobody
        """Called when it may have become able to take a request that it could not take before."""

    @property
    def has_room(self) -> bool:
        return self.in_flight < self.max_in_flight

    def serves(self, model: str) -> bool:
        return self.facts is not None and any(model == served.id for served in self.facts.models)

    @property
    def waiting(self) -> int:
        """Requests the engine holds back, as of the last probe; 0 where it does not say."""
        return (self.facts.waiting or 0) if self.facts is not None else 0

    def __repr__(self) -> str:
        return (
            f"<Backend {self.name} {self.mode} in_flight={self.in_flight}"
            f" queued_tokens={self.queued_tokens} {self.health!r}>"
        )


def _nobody() -> None:
    pass


class Lease:
    """One request's claim on a backend, counted from selection on; released exactly once."""

    def __init__(self, backend: Backend, uncached_tokens: int, now: float) -> None:
        self.backend = backend
        self._queued = uncached_tokens
        self._open = True
        backend.in_flight += 1
        backend.queued_tokens += uncached_tokens
        self._trial = backend.health.started(now)

    def prefilled(self) -> None:
        """The first token is out: this prompt is no longer work ahead of others."""
        self.backend.queued_tokens -= self._queued
        self._queued = 0

    def release(self, outcome: Outcome, now: float) -> None:
        """Later calls do nothing, so that a `finally` may call it after the ordinary path did."""
        if not self._open:
            return
        self._open = False
        self.prefilled()
        self.backend.in_flight -= 1
        self.backend.health.ended(outcome, now, trial=self._trial)
        self.backend.on_change()
