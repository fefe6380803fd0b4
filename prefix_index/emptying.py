"""Whether an engine's cache was emptied behind our back: by a restart too short to be seen, a reset
of its prefix cache, a sleep.

Losing what was not used for long is an LRU's daily work. What is suspicious is to lose what was
used last, while no request in between finds anything from before. Pure: time is the cache model's
own count of touches.
"""

from __future__ import annotations

TIMES = 3
"""Requests in a row. Requests that may not read the cache are rare enough to come alone."""
YOUNG = 1 / 8
"""Of the room: a block is young if no more than this was used after it."""


class Emptying:
    """Mutable."""

    __slots__ = ("_oldest", "_room", "_times", "since")

    def __init__(self) -> None:
        self._times = 0
        self._oldest = 0
        self.since = 0
        """All that was touched up to then, and was believed, is under suspicion."""
        self._room = 0

    @property
    def suspected(self) -> bool:
        return self._times > 0

    def suspect(self, *, used_since: int, room: int, clock: int, oldest: int) -> None:
        """A block was lost though only so many were used after it. `clock` and `oldest`: when its
        request began, and the oldest touch of what was believed then."""
        if not self._times and used_since <= room * YOUNG:
            self._times, self.since, self._room, self._oldest = 1, clock, room, oldest

    def note(self, touched: int, *, found: bool) -> bool:
        """Of what a request found, or not, among what was touched up to `since`, the youngest was
        touched then. True: the cache was emptied."""
        if found:
            self._times = 0
        elif touched >= self._oldest:  # or it was not believed then either
            self._times += 1
        return self._times >= TIMES

    def end(self) -> tuple[int, int]:
        """`since`, and the room estimated then: what an emptied cache lost tells nothing of it."""
        self._times = 0
        return self.since, self._room
