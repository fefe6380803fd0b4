"""When to try Redis again, and what to say: a pure state machine."""

from __future__ import annotations

FIRST_PAUSE_S = 0.2
MAX_PAUSE_S = 5.0


class Breaker:
    """Open while Redis does not work: nothing is sent there but a trial after each pause."""

    def __init__(
        self,
        *,
        does: str = "shares what it learns with other replicas through Redis",
        without: str = "routing by what is known here",
    ) -> None:
        """For the log: what Redis is used for, and what is done without it."""
        self._does = does
        self._without = without
        self._open_since: float | None = None
        self._failures = 0
        self._worked_once = False

    @property
    def closed(self) -> bool:
        """Redis works, as far as is known."""
        return self._worked_once and self._open_since is None

    @property
    def pause_s(self) -> float:
        """Before the next trial."""
        return min(FIRST_PAUSE_S * 2.0 ** max(self._failures - 1, 0), MAX_PAUSE_S)

    def failed(self, reason: str, now: float) -> str:
        """What is to be logged; "" where it was said before."""
        self._failures += 1
        if self._open_since is not None:
            return ""
        self._open_since = now
        return f"Redis fails ({reason}): {self._without} until it is back"

    def worked(self, now: float) -> str:
        """The same, of what was written and of what was read."""
        since, self._open_since = self._open_since, None
        first, self._worked_once, self._failures = not self._worked_once, True, 0
        if since is not None:
            return f"Redis works again, after {now - since:.1f} s"
        return self._does if first else ""
