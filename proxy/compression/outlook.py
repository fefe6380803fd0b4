"""What the gate is told of the backends: their queues and rates, and what their caches are believed
to hold of one form of a prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

from prefold.backends.backend import Backend
from prefold.backends.pool import BackendPool
from prefold.compression.gate import Place
from prefold.proxy.prompt import Prompt
from prefold.proxy.selection import Selector


class Outlook:
    def __init__(self, pool: BackendPool, selector: Selector) -> None:
        self._pool = pool
        self._selector = selector

    def backends(self, model: str, now: float) -> list[Backend]:
        """Those that may be chosen now; where none has room, those for which it will wait."""
        return self._pool.candidates(model, now) or [
            backend
            for backend in self._pool
            if backend.serves(model) and backend.health.usable(now)
        ]

    def places(self, backends: Sequence[Backend], now: float) -> list[Place]:
        """As routing sees them, since it is routing that will choose."""
        rates = self._pool.routing_rates(backends, now)
        return [
            Place(
                queued_tokens=backend.ahead_tokens(now),
                tokens_per_s=rate,
                overhead_s=backend.rate.overhead_s or 0.0,
            )
            for backend, rate in zip(backends, rates, strict=True)
        ]

    def cached(self, prompt: Prompt, backends: Sequence[Backend]) -> list[int]:
        """Tokens of it, at each."""
        return self._selector.cached_tokens(backends, prompt)
