"""Which backend made a response: what is asked by its id later must go there.

Bounded, in memory: after a restart the ids are unknown again.
"""

from __future__ import annotations

from collections import OrderedDict

MAX_PINS = 100_000
MAX_ID_CHARS = 256


class Pins:
    """Mutable. An id belongs to the tenant whose request made it; another's is unknown to it."""

    def __init__(self, limit: int = MAX_PINS) -> None:
        self._limit = limit
        self._backends: OrderedDict[tuple[str, str], str] = OrderedDict()

    def learn(self, tenant: str, response_id: str, backend: str) -> None:
        if len(response_id) > MAX_ID_CHARS:
            return
        key = (tenant, response_id)
        self._backends[key] = backend
        self._backends.move_to_end(key)
        if len(self._backends) > self._limit:
            self._backends.popitem(last=False)

    def find(self, tenant: str, response_id: str) -> str | None:
        key = (tenant, response_id)
        backend = self._backends.get(key)
        if backend is not None:
            self._backends.move_to_end(key)
        return backend

    def __len__(self) -> int:
        return len(self._backends)


class DigestPins:
    """Mutable, bounded: backends by digest."""

    def __init__(self, limit: int = MAX_PINS) -> None:
        self._limit = limit
        self._backends: OrderedDict[bytes, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._backends)

    def learn(self, digest: bytes, backend: str) -> None:
        self._backends[digest] = backend
        self._backends.move_to_end(digest)
        if len(self._backends) > self._limit:
            self._backends.popitem(last=False)

    def find(self, digest: bytes) -> str | None:
        return self._backends.get(digest)

    def items(self) -> list[tuple[bytes, str]]:
        """Oldest first."""
        return list(self._backends.items())
