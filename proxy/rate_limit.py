"""How much each key may ask: requests per minute (a token bucket) and requests at once. Pure, with
time passed in; knows neither keys nor HTTP. It keeps one small entry for each key it was asked
about, so callers ask for keys that are configured only.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

from prefold.proxy.errors import RateLimited

_SLACK = 1e-9
"""That of sums of floats: who waits as long as told must get in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a response says of the limit: requests per minute, and how many are left right now."""

    limit: int
    remaining: int


@dataclass(slots=True)
class _Use:
    tokens: float
    at: float
    parallel: int = 0


class RateLimiter:
    """Mutable. A key may spend a minute's requests at once, then one each 60/rate seconds."""

    def __init__(self) -> None:
        self._uses: dict[Hashable, _Use] = {}

    def admit(
        self, key: Hashable, *, requests_per_minute: float, parallel: int, now: float
    ) -> None:
        """Count a request in; limits of 0 are none. Each call that returns is paired with one
        `release`. Raises RateLimited, and then nothing was counted."""
        use = self._use(key, requests_per_minute, now)
        if parallel and use.parallel >= parallel:
            raise RateLimited("Too many requests of this API key at once.", retry_after_s=1)
        if requests_per_minute:
            _take(use, requests_per_minute / 60.0)
        use.parallel += 1

    def allowance(
        self, key: Hashable, *, requests_per_minute: float, now: float
    ) -> Allowance | None:
        """None where no rate is set."""
        if not requests_per_minute:
            return None
        use = self._use(key, requests_per_minute, now)
        return Allowance(limit=math.ceil(requests_per_minute), remaining=int(use.tokens + _SLACK))

    def release(self, key: Hashable) -> None:
        """The request has ended, however it ended."""
        self._uses[key].parallel -= 1

    def parallel(self, key: Hashable) -> int:
        """Requests of this key that are not released."""
        use = self._uses.get(key)
        return use.parallel if use is not None else 0

    def _use(self, key: Hashable, requests_per_minute: float, now: float) -> _Use:
        """Refilled up to now."""
        burst = max(requests_per_minute, 1.0)
        use = self._uses.setdefault(key, _Use(tokens=burst, at=now))
        elapsed = max(now - use.at, 0.0)
        use.tokens = min(use.tokens + elapsed * requests_per_minute / 60.0, burst)
        use.at += elapsed
        return use


def _take(use: _Use, per_second: float) -> None:
    if use.tokens < 1.0 - _SLACK:
        wait = math.ceil((1.0 - use.tokens) / per_second - 1e-6)
        raise RateLimited("Too many requests of this API key in a minute.", retry_after_s=wait)
    use.tokens = max(use.tokens - 1.0, 0.0)
