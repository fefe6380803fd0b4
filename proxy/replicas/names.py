"""Backends' names here, and in Redis: there they are keyed digests of their URLs, so that replicas
may call a backend differently and never mistake one for another. What is told of a backend that
is not here is not learned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from prefold.prefix_index.deltas import Corrected, Finished, Placed
from prefold.proxy.replicas.loads import NOTHING, OfReplicas, Share
from prefold.proxy.replicas.messages import Loads, Told
from prefold.proxy.replicas.seal import Seal
from prefold.proxy.workers.messages import Emptied, Forgot, Formed, Pinned

AGAIN_S = 30.0
"""Word of one restart comes from each replica, within some rounds of probes."""


class Named(Protocol):
    """A backend."""

    @property
    def name(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def rank(self) -> int | None: ...


class Names:
    """Mutable: the backends there are now."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        self._known: tuple[tuple[str, str, int | None], ...] = ()
        self._outward: dict[str, str] = {}
        self._inward: dict[str, str] = {}

    def learn(self, backends: Iterable[Named]) -> None:
        """To be called often."""
        known = tuple((one.name, one.url, one.rank) for one in backends)
        if known != self._known:
            self._known = known
            self._outward = {name: self._seal.backend(url, rank) for name, url, rank in known}
            self._inward = {digest: name for name, digest in self._outward.items()}

    def outward(self, message: Told) -> Told | None:
        return _renamed(message, self._outward)

    def inward(self, message: Told) -> Told | None:
        return _renamed(message, self._inward)

    def loads(self, backends: Mapping[str, OfReplicas]) -> Loads:
        """Of this replica, where there is something."""
        shares = {name: (load.here, load.queued_here) for name, load in backends.items()}
        return Loads(
            tuple(
                (self._outward[name], *share)
                for name, share in shares.items()
                if share != NOTHING and name in self._outward
            )
        )

    def shares(self, loads: Loads) -> dict[str, Share]:
        return {
            self._inward[digest]: (requests, tokens)
            for digest, requests, tokens in loads.backends
            if digest in self._inward
        }


def _renamed(message: Told, names: Mapping[str, str]) -> Told | None:
    if isinstance(message, Forgot | Formed | Loads):
        return message
    name = names.get(message.backend)
    if name is None:
        return None
    match message:
        case Placed() | Corrected():
            return msgspec.structs.replace(message, backend=name)
        case Finished(number=number, computed=computed):
            return Finished(name, number, computed)
        case Emptied():
            return Emptied(name)
        case Pinned(digest=digest):
            return Pinned(digest, name)


class Emptyings:
    """Mutable. A restart of a backend is found by each replica, and told by each: what was placed
    there since we knew is not to be forgotten again."""

    def __init__(self) -> None:
        self._known: dict[str, float] = {}

    def note(self, backend: str, now: float) -> None:
        """We know."""
        self._known[backend] = now

    def news(self, backend: str, now: float) -> bool:
        """Of what was told just now. It is known from here on."""
        before = self._known.get(backend)
        if before is not None and now - before < AGAIN_S:
            return False
        self._known[backend] = now
        return True
