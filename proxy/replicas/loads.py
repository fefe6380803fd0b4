"""What other replicas have at each backend, while they are known to live.

A replica tells all of its loads whenever one has changed, and at least every second; what it told
holds for LIVE_S. So a replica that died, or a Redis that stands still, leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from prefold.backends.backend import Load

LIVE_S = 3.0
Share = tuple[int, int]
"""Requests, and their queued tokens."""
NOTHING: Share = (0, 0)


class OfReplicas(Protocol):
    """A backend's load, in two parts."""

    @property
    def here(self) -> int: ...
    @property
    def queued_here(self) -> int: ...

    def elsewhere(self, requests: int, queued_tokens: int) -> None:
        """What the others have there from now on."""


class ReplicaLoad(Load):
    """All replicas' requests are load, as it was some 50 ms ago. The limit of a backend's requests
    is each replica's own: none waits for what another one says."""

    def __init__(self, own: Load) -> None:
        """`own`: what the backend had until now, and is not told of anything from now on."""
        super().__init__()
        self.add(own.in_flight, own.queued_tokens)
        self._requests = 0
        self._tokens = 0

    @property
    def in_flight(self) -> int:
        return self._in_flight + self._requests

    @property
    def queued_tokens(self) -> int:
        return self._queued_tokens + self._tokens

    def elsewhere(self, requests: int, queued_tokens: int) -> None:
        self._requests = requests
        self._tokens = queued_tokens


class Elsewhere:
    """Mutable: what each living replica told last. Pure bookkeeping."""

    def __init__(self, live_s: float = LIVE_S) -> None:
        self._live_s = live_s
        self._told: dict[int, tuple[float, Mapping[str, Share]]] = {}
        self._given: dict[str, tuple[OfReplicas, Share]] = {}

    def __len__(self) -> int:
        """Replicas."""
        return len(self._told)

    def told(self, source: int, loads: Mapping[str, Share], now: float) -> None:
        self._told[source] = now, loads

    def gone(self, source: int) -> None:
        self._told.pop(source, None)

    def apply(self, backends: Mapping[str, OfReplicas], now: float) -> None:
        """Each backend is given the sum of what living replicas told; one that is no longer there,
        nothing."""
        for source, (when, _) in list(self._told.items()):
            if now - when > self._live_s:
                del self._told[source]
        sums: dict[str, Share] = {}
        for _, loads in self._told.values():
            for name, (requests, tokens) in loads.items():
                before = sums.get(name, NOTHING)
                sums[name] = before[0] + requests, before[1] + tokens
        for name, (load, given) in list(self._given.items()):
            if backends.get(name) is not load:
                del self._given[name]
                if given != NOTHING:
                    load.elsewhere(0, 0)
        for name, load in backends.items():
            share = sums.get(name, NOTHING)
            if self._given.get(name) != (load, share):
                load.elsewhere(*share)
                self._given[name] = load, share
