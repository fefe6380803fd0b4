"""The fleet: which backends there are, and which may take a request for a model now."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from prefold.backends.backend import Backend


class BackendPool:
    def __init__(self, backends: Sequence[Backend]) -> None:
        self._backends = {backend.name: backend for backend in backends}

    def __iter__(self) -> Iterator[Backend]:
        return iter(self._backends.values())

    def __getitem__(self, name: str) -> Backend:
        return self._backends[name]

    def models(self) -> list[str]:
        """Every model that some backend listed when it was last ready, in order of discovery."""
        return list(
            dict.fromkeys(
                served.id
                for backend in self
                if backend.facts is not None
                for served in backend.facts.models
            )
        )

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

    def __repr__(self) -> str:
        return f"<BackendPool {list(self)!r}>"
