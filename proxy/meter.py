"""What a stream says of itself: when tokens came, what was counted, how it ended.

Pure: events and times in, facts out. The forms of the events are those of the protocol: `chunks`
(chat and text completions), `messages`, `responses`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from prefold.backends.engine import Timings, Usage
from prefold.proxy.sse import event_data

T = TypeVar("T")
NULL = msgspec.Raw(b"null")
MAX_NOTED = 64
"""Events without a token, and changes of the tokens' kind, of which a sound stream has few."""


class Ending(StrEnum):
    OPEN = "open"  # nothing terminal seen
    COMPLETE = "complete"
    ERROR = "error"  # the upstream said so itself


class Meter(ABC):
    """Mutable; one for each stream. Times are whatever clock the caller passes in."""

    def __init__(self) -> None:
        self.token_times: list[float] = []
        self.token_kinds: list[tuple[int, str]] = []
        """From which of them on they are of which kind: content, reasoning or tool."""
        self.other_events: list[tuple[float, str]] = []
        """Times and kinds of those that carry no token: role, finish, usage, done, other."""
        self.token_kind = ""
        """Of the last one."""
        self.usage: Usage | None = None
        self.timings: Timings | None = None
        self.done = False
        """[DONE] was seen: what comes after it is no answer, and some clients would show it."""
        self.error_status: int | None = None
        """Of an error that the upstream reported in the stream; 500 where it names none."""
        self.hidden_error = False
        """It came in a shape that clients overlook: they would take the stream for whole."""
        self.response_id: str | None = None
        """By which a later request may ask for this answer (Responses only)."""
        self.events = 0

    @property
    def ending(self) -> Ending:
        if self.error_status is not None:
            return Ending.ERROR
        return Ending.COMPLETE if self.done or self.complete() else Ending.OPEN

    def observe(self, event: bytes, now: float) -> bool:
        """Take note of one event; whether it goes to the client."""
        if self.done or self.hidden_error:
            return False
        self.events += 1
        data = event_data(event)
        if data is None or not (data := data.strip()):
            return True
        if data == b"[DONE]":
            self.done = True
            self.note_other(now, "done")
            return True
        try:
            return self.note(data, now)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return True  # not for us to judge: it is relayed as it is

    def note_token(self, now: float, kind: str) -> None:
        """Once for each token event."""
        if kind != self.token_kind and len(self.token_kinds) < MAX_NOTED:
            self.token_kind = kind
            self.token_kinds.append((len(self.token_times), kind))
        self.token_times.append(now)

    def note_other(self, now: float, kind: str) -> None:
        if len(self.other_events) < MAX_NOTED:
            self.other_events.append((now, kind))

    @abstractmethod
    def complete(self) -> bool:
        """Whether the protocol's own last event was seen."""

    @abstractmethod
    def note(self, data: bytes, now: float) -> bool:
        """One event's data; whether it goes to the client. Raises msgspec.DecodeError."""


def decoded(raw: msgspec.Raw, kind: type[T]) -> T | None:
    """None for null, and for a form of its own that some server gives it."""
    if bytes(raw) == b"null":
        return None
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def status_of_error(error: Any) -> int:
    """The HTTP status that an error object names in `code` or `status`; 500 where it names none."""
    for key in ("code", "status"):
        named = error.get(key) if isinstance(error, dict) else None
        if isinstance(named, str) and named.isdecimal() and len(named) == 3:
            named = int(named)
        if isinstance(named, int) and 400 <= named <= 599:
            return named
    return 500
