"""One LLM server as the proxy knows it: identity, limits, health, load, learned prefill rate."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from ssl import SSLContext
from typing import Literal, Protocol

from prefold.backends.engine import Engine, EngineFacts
from prefold.backends.health import Health, HealthRules, Outcome
from prefold.backends.kv_events.subscriber import Source
from prefold.backends.line import Line
from prefold.backends.prediction import Prediction
from prefold.backends.rate import PrefillRate


class Mode(StrEnum):
    """How well a backend's cache is known, best first. A drop is always visible."""

    EVENTS = "events"  # exact tokens, and the engine tells what its cache holds
    FEEDBACK = "feedback"  # exact tokens, and the engine reports cached tokens
    UNVERIFIED = "unverified"  # exact tokens, but the engine never reports what was cached
    APPROXIMATE = "approximate"  # tokenizer unknown or different: prompt bytes stand for tokens
    RENDEZVOUS = "rendezvous"  # what was expected was wrong for long: nothing is, a hash decides


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

    @property
    def here(self) -> int:
        """Of those in flight, the ones of this proxy, not of other replicas that told of theirs:
        `max_in_flight` is each one's own."""
        return self._in_flight

    @property
    def queued_here(self) -> int:
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
        rank: int | None = None,
        labels: Mapping[str, str] | None = None,
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
        self.rank = rank
        """The data-parallel rank of the server at `url` that this is; None: all of that server."""
        self.labels: Mapping[str, str] = labels or {}
        """As the operator named it, by which requests may be kept to some backends."""
        self.problem = ""
        """Why the last probe failed, where an adapter or the client said it."""
        self.probing = asyncio.Lock()
        self.health = Health(rules)
        self.facts = None
        self.mode = Mode.APPROXIMATE
        """What its cache model is made of; `shown_mode` says what that is worth."""
        self.mode_reason = "not probed yet"
        self.settled = False
        """The mode is a verdict, not the lack of one: a comparison that failed is tried again."""
        self.rate = PrefillRate()
        self.prediction = Prediction()
        self.line = Line()
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

    def ahead_tokens(self, now: float) -> int:
        """`queued_tokens`, less what should be done by now of the first of them: as far as the rate
        is known, and nobody else's requests may be computed first."""
        queued, line = self.load.queued_tokens, self.line
        rate = self.rate.tokens_per_s
        if not queued or rate is None or queued != line.total:
            return queued
        return queued - line.done_tokens(rate, now)

    @property
    def has_room(self) -> bool:
        return self.load.here < self.max_in_flight

    @property
    def shown_mode(self) -> Mode:
        """With what answers have shown since."""
        if self.mode is Mode.EVENTS:
            return self.mode
        if not self.prediction.trusted:
            return Mode.RENDEZVOUS
        return Mode.UNVERIFIED if self.unverified else self.mode

    @property
    def unverified(self) -> bool:
        return self.mode is Mode.FEEDBACK and self.prediction.silent

    @property
    def shown_reason(self) -> str:
        if self.shown_mode is Mode.RENDEZVOUS:
            return f"what it reports as cached is far less than expected; {self.mode_reason}"
        if self.shown_mode is Mode.UNVERIFIED:
            return f"{self.mode_reason}; it never reports cached tokens"
        return self.mode_reason

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
        backend.line.join(self, uncached_tokens, now)
        self._trial = backend.health.started(now)

    def prefilled(self, now: float) -> None:
        """The first token is out: this prompt is no longer work ahead of others."""
        if self._queued:
            self.backend.load.add(0, -self._queued)
            self.backend.line.leave(self, now)
            self._queued = 0

    def release(self, outcome: Outcome, now: float) -> None:
        """Later calls do nothing, so that a `finally` may call it after the ordinary path did."""
        if not self._open:
            return
        self._open = False
        backend = self.backend
        backend.load.add(-1, -self._queued)
        backend.line.leave(self, now)
        self._queued = 0
        if backend.witness is not None:
            if outcome is Outcome.FAILURE and backend.health.gone:
                backend.witness.down(backend.name)
            else:
                backend.witness.ended(backend.name, outcome, trial=self._trial)
        backend.health.ended(outcome, now, trial=self._trial)
        backend.on_change()
