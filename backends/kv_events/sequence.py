"""Whether the next message of an event stream may be believed, from its number and its time alone.

A publisher numbers its batches from 0 and keeps the latest for replay; a message that did not get
through is missed for good otherwise. What a missing batch removed would be believed to be held
until the engine ends, so a gap that cannot be filled voids all that was known. Pure: no sockets,
no clock, no events.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Mark(NamedTuple):
    """A batch's number, and the engine's own time in it: together they tell one life of an engine
    from the next, whose numbers begin anew."""

    number: int
    ts: float


class Ruling(Enum):
    APPLY = "apply"  # the next one
    SKIP = "skip"  # known already
    ASK = "ask"  # something is missing, or the engine began anew: ask for a replay
    BEGIN = "begin"  # the engine's first: what was known is void, and from here on all is
    JOIN = "join"  # the first known: what was known is void, and what came before is not known


class Sequence:
    """Mutable. After ASK the caller asks for a replay from `replay_from()`, passes what it gets to
    `replayed`, and the end of it to `replay_ended`; if either asks once more, `forget` comes first.
    If there is no replay to be had it gives up. Then the message that was asked about is passed to
    `live` again.
    """

    def __init__(self) -> None:
        self._last: Mark | None = None
        self._joining = False
        """Without a replay: whatever comes next is where it begins."""
        self._replied = False

    def __repr__(self) -> str:
        return f"<Sequence at {self._last.number if self._last else None}>"

    def live(self, mark: Mark) -> Ruling:
        """Of a message of the stream itself."""
        if self._last is not None:
            return self._after(self._last, mark)
        if mark.number != 0 and not self._joining:
            return Ruling.ASK
        return self._first(mark)

    def replay_from(self) -> int:
        """The last known batch comes once more: that it is the same proves the engine is."""
        self._replied = False
        return self._last.number if self._last is not None else 0

    def replayed(self, mark: Mark) -> Ruling:
        """Of a message of a replay."""
        first, self._replied = not self._replied, True
        if self._last is None:
            return self._first(mark)
        if first and mark != self._last:
            return Ruling.ASK
        return self._after(self._last, mark)

    def replay_ended(self) -> Ruling:
        """SKIP: all is well. JOIN: there was nothing in it, so either nothing was published yet,
        which the number of the first live message will tell, or the publisher keeps nothing."""
        if self._replied:
            return Ruling.SKIP
        return Ruling.JOIN if self._last is None else Ruling.ASK

    def forget(self) -> None:
        """The engine may be another: the next replay is from its start."""
        self._last = None
        self._joining = False

    def give_up(self) -> None:
        """No replay: the next live message is where the known history begins."""
        self._last = None
        self._joining = True

    def _first(self, mark: Mark) -> Ruling:
        self._last = mark
        self._joining = False
        return Ruling.JOIN if mark.number else Ruling.BEGIN

    def _after(self, last: Mark, mark: Mark) -> Ruling:
        if mark.number == last.number + 1:
            self._last = mark
            return Ruling.APPLY
        # What a replay brought comes again in the stream, and is no newer than the replay.
        if mark.number <= last.number and mark.ts <= last.ts:
            return Ruling.SKIP
        return Ruling.ASK
