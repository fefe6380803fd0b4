"""How much each key may ask: requests per minute (a token bucket) and requests at once. Pure, with
time passed in; knows neither keys nor HTTP. It keeps one small entry for each key it was asked
about, so callers ask for keys that are configured only.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

from prefold.proxy.errors import RateLimited


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
    ) -> Allowance | None:
        """Count a request in; None where no rate is set. Limits of 0 are none. Each call that
        returns is paired with one `release`. Raises RateLimited, and then nothing was counted."""
        burst = max(requests_per_minute, 1.0)
        use = self._uses.setdefault(key, _Use(tokens=burst, at=now))
        if parallel and use.parallel >= parallel:
            raise RateLimited("Too many requests of this API key at once.", retry_after_s=1)
        if requests_per_minute:
            _refill(use, requests_per_minute / 60.0, burst, now)
            _take(use, requests_per_minute / 60.0)
        use.parallel += 1
        if not requests_per_minute:
            return None
        return Allowance(limit=math.ceil(requests_per_minute), remaining=int(use.tokens))

    def release(self, key: Hashable) -> None:
        """The request has ended, however it ended."""
        self._uses[key].parallel -= 1

    def parallel(self, key: Hashable) -> int:
        """Requests of this key that are not released."""
        use = self._uses.get(key)
        return use.parallel if use is not None else 0


def _refill(use: _Use, per_second: float, burst: float, now: float) -> None:
    elapsed = max(now - use.at, 0.0)
    use.tokens = min(use.tokens + elapsed * per_second, burst)
    use.at = max(now, use.at)


def _take(use: _Use, per_second: float) -> None:
    # The slack is that of sums of floats: who waits as long as told must get in.
    if use.tokens < 1.0 - 1e-9:
        wait = math.ceil((1.0 - use.tokens) / per_second - 1e-6)
        raise RateLimited("Too many requests of this API key in a minute.", retry_after_s=wait)
    use.tokens = max(use.tokens - 1.0, 0.0)
