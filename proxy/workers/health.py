"""What one process learned of a backend's health, learned by another."""

from __future__ import annotations

from collections.abc import Callable

from prefold.backends.health import Outcome
from prefold.backends.pool import BackendPool
from prefold.proxy.workers.messages import Down, Ended, Orders, Parent, Peers


class HealthTeller:
    """A `Witness` that tells others what is news to them: failures, and the successes after."""

    def __init__(self, tell: Callable[[Peers], None]) -> None:
        self._tell = tell
        self._failing: set[str] = set()

    def ended(self, backend: str, outcome: Outcome, *, trial: bool) -> None:
        if outcome is Outcome.FAILURE:
            self._failing.add(backend)
        elif outcome is Outcome.SUCCESS and backend in self._failing:
            self._failing.discard(backend)
        else:
            return
        self._tell(Ended(backend, outcome, trial))

    def down(self, backend: str) -> None:
        self._failing.add(backend)
        self._tell(Down(backend))

    def heard(self, message: Ended | Down) -> None:
        """From another process."""
        if isinstance(message, Ended) and message.outcome is Outcome.SUCCESS:
            self._failing.discard(message.backend)
        else:
            self._failing.add(message.backend)


def take_in(message: Peers | Parent | Orders, pool: BackendPool, now: float) -> None:
    """Nothing, if it is of something else, or of a backend that is not here (any more)."""
    if not isinstance(message, Ended | Down) or message.backend not in pool:
        return
    backend = pool[message.backend]
    if isinstance(message, Down):
        backend.health.down()
    else:
        backend.health.ended(message.outcome, now, trial=message.trial)
    backend.on_change()
