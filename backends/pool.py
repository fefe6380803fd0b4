"""The fleet: which backends there are, and which may take a request for a model now."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from prefold.backends.backend import Backend


class BackendPool:
    def __init__(self, backends: Sequence[Backend], initial_prefill_tokens_per_s: float) -> None:
        self._backends = {backend.name: backend for backend in backends}
        self._initial_rate = initial_prefill_tokens_per_s

    def __iter__(self) -> Iterator[Backend]:
        return iter(self._backends.values())

    def __getitem__(self, name: str) -> Backend:
        return self._backends[name]

    def models(self) -> dict[str, dict[str, Any]]:
        """Every model that some backend listed when it was last ready, with the card of the first
        one that did, in order of discovery."""
        found: dict[str, dict[str, Any]] = {}
        for backend in self:
            for served in backend.facts.models if backend.facts is not None else ():
                found.setdefault(served.id, served.card)
        return found

    def candidates(
        self, model: str | None, now: float, excluded: Collection[str] = ()
    ) -> list[Backend]:
        """Usable backends that list `model` (any model for None), less the `excluded` names.

        When passive evidence has ejected all that answer their probes, they are all returned
        (panic mode, after Envoy): a wrong verdict must not turn into a full outage.
        """
        listing = [
            backend
            for backend in self
            if backend.name not in excluded
            and backend.health.reachable
            and (backend.facts is not None if model is None else backend.serves(model))
        ]
        return [backend for backend in listing if backend.health.usable(now)] or listing

    def prefill_rate(self, backend: Backend) -> float:
        """Tokens per second as learned; before that the mean of what others have shown, so that a
        backend is not preferred, or shunned, for being new."""
        own = backend.rate.tokens_per_s
        if own is not None:
            return own
        known = [rate for other in self if (rate := other.rate.tokens_per_s) is not None]
        return sum(known) / len(known) if known else self._initial_rate

    def __repr__(self) -> str:
        return f"<BackendPool {list(self)!r}>"
