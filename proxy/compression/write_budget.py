"""How much may be written of what expires, so that what is there stays within a bound. Pure."""

from __future__ import annotations

from collections import deque

PARTS = 64
"""The time that values live, in steps of which bytes are counted together."""


class WriteBudget:
    """Mutable. Where every value lives for `ttl_s`, never more than `max_bytes` are alive."""

    def __init__(self, *, max_bytes: int, ttl_s: float) -> None:
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._parts: deque[tuple[float, int]] = deque()
        """When the last value of each was written, and their bytes."""
        self.bytes = 0
        """Alive."""

    def take(self, size: int, now: float) -> bool:
        """Whether a value of so many bytes may be written now; if so, it is counted."""
        while self._parts and now - self._parts[0][0] >= self._ttl_s:
            self.bytes -= self._parts.popleft()[1]
        if self.bytes + size > self._max_bytes:
            return False
        self.bytes += size
        step = self._ttl_s / PARTS
        if self._parts and now // step == self._parts[-1][0] // step:
            self._parts[-1] = now, self._parts[-1][1] + size
        else:
            self._parts.append((now, size))
        return True
