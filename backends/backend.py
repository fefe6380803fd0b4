"""One LLM server as the proxy knows it: identity, limits, health, load, learned prefill rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from ssl import SSLContext
from typing import Literal, Protocol

from prefold.backends.engine import Engine, EngineFacts
from prefold.backends.health import Health, HealthRules, Outcome
from prefold.backends.kv_events.subscriber import Source


class Mode(StrEnum):
    """How well a backend's cache is known, best first. A drop is always visible."""

    EVENTS = "events"  # exact tokens, and the engine tells what its cache holds
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


class Load:
    """What a backend has of ours, and who waits for it. Here of one process; where several serve,
    a subclass answers for all of them, and its `add` and `wait` are this one's share."""

    def __init__(self) -> None:
        self._in_flight = 0
        self._queued_tokens = 0

    @property
    def in_flight(self) -> int:
        return self._in_flight

    @property
    def queued_tokens(self) -> int:
        return self._queued_tokens

    def add(self, requests: int, queued_tokens: int) -> None:
        """Either may be negative."""
        self._in_flight += requests
        self._queued_tokens += queued_tokens

    def wait(self, since: float | None) -> None:
        """When the request of ours came that has waited for it longest; None: nobody waits."""

    def waits_elsewhere(self, after: float) -> float:
        """The same of other processes, of requests that came after then; infinity: none."""
        return math.inf


class Witness(Protocol):
    """Is told what a process has learned of a backend's health, so that others learn it too."""

    def ended(self, backend: str, outcome: Outcome, *, trial: bool) -> None:
        """How an exchange ended."""

    def down(self, backend: str) -> None:
        """It says that it is not ready, or nothing listens there."""


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
        event_source: Source | Literal["ask"] | None = None,
    ) -> None:
        self.name = name
        self.url = url
        self.headers = headers
        self.engine = engine
        self.ssl = ssl
        """For an https URL; None: its certificate is checked against the system's authorities."""
        self.pass_client_key = pass_client_key
        self.max_in_flight = max_in_flight
        self.event_source = event_source
        """Where its KV events are to be had; "ask": where it says itself; None: not followed."""
        self.health = Health(rules)
        self.facts = None
        self.mode = Mode.APPROXIMATE
        self.mode_reason = "not probed yet"
        self.settled = False
        """The mode is a verdict, not the lack of one: a comparison that failed is tried again."""
        self.rate = PrefillRate()
        self.load = Load()
        self.witness: Witness | None = None
        self.on_change: Callable[[], None] = _nobody
        """Called when it may have become able to take a request that it could not take before."""

    @property
    def in_flight(self) -> int:
        """Requests leased now."""
        return self.load.in_flight

    @property
    def queued_tokens(self) -> int:
        """Uncached tokens of the prompts among them whose first token is not out."""
        return self.load.queued_tokens

    @queued_tokens.setter
    def queued_tokens(self, tokens: int) -> None:
        self.load.add(0, tokens - self.load.queued_tokens)

    @property
    def has_room(self) -> bool:
        return self.load.in_flight < self.max_in_flight

    def serves(self, model: str | None) -> bool:
        """None: any model at all."""
        return model in self._models if model is not None else self._facts is not None

    @property
    def facts(self) -> EngineFacts | None:
        """As of the last probe that found it ready; None before that."""
        return self._facts

    @facts.setter
    def facts(self, facts: EngineFacts | None) -> None:
        self._facts = facts
        models = facts.models if facts is not None else ()
        self._models = frozenset(served.id for served in models)
        self.adapters = frozenset(served.id for served in models if served.card.get("parent"))
        """Of the models it serves, those that are adapters: vLLM lists their base as the parent."""

    @property
    def waiting(self) -> int:
        """Requests the engine holds back, as of the last probe; 0 where it does not say."""
        return (self._facts.waiting or 0) if self._facts is not None else 0

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
        backend.load.add(1, uncached_tokens)
        self._trial = backend.health.started(now)

    def prefilled(self) -> None:
        """The first token is out: this prompt is no longer work ahead of others."""
        if self._queued:
            self.backend.load.add(0, -self._queued)
            self._queued = 0

    def release(self, outcome: Outcome, now: float) -> None:
        """Later calls do nothing, so that a `finally` may call it after the ordinary path did."""
        if not self._open:
            return
        self._open = False
        backend = self.backend
        backend.load.add(-1, -self._queued)
        self._queued = 0
        if backend.witness is not None:
            if outcome is Outcome.FAILURE and backend.health.gone:
                backend.witness.down(backend.name)
            else:
                backend.witness.ended(backend.name, outcome, trial=self._trial)
        backend.health.ended(outcome, now, trial=self._trial)
        backend.on_change()
