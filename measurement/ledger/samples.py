"""How loaded engines were, as they said themselves, a few times a minute: the only evidence about
their KV memory. Rows of the ledger's table `engine_samples`.
"""

from __future__ import annotations

import msgspec


class EngineSample(msgspec.Struct, frozen=True, kw_only=True):
    """Of one backend. `at`: seconds since 1970. None where the engine does not tell it.
    `kv_usage`: share of its KV cache that requests under way hold, 0 to 1; `preemptions`: since it
    started, how often it took a request's memory back; `in_flight`: requests of ours there."""

    at: float
    backend: str
    running: int | None
    waiting: int | None
    kv_usage: float | None
    preemptions: int | None
    in_flight: int

    @property
    def idle(self) -> bool:
        """Nothing is to be learned from it."""
        return not (self.running or self.waiting or self.in_flight)
