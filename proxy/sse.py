"""Server-sent events as bytes: cutting a stream into whole events without changing any byte.

https://html.spec.whatwg.org/multipage/server-sent-events.html: lines end with LF, CRLF or CR, a
blank line ends an event. This file knows nothing of what events mean.
"""

from __future__ import annotations

import re

# A line end followed by a line end. A CR at the very end of what has arrived may be half a CRLF,
# so a lone CR only counts as a line end when the byte after it is known.
_BOUNDARY = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?=[^\n]))")
BOM = b"\xef\xbb\xbf"  # may begin a stream, and is not part of its first line
_DATA = re.compile(rb"(?:^|[\r\n])data: ?([^\r\n]*)")


class EventTooLong(ValueError):
    """An event grew beyond the limit before its blank line came."""


class EventSplitter:
    """Bytes in, whole events out. Mutable: holds the incomplete tail."""

    def __init__(self, max_event_bytes: int = 8 * 1024 * 1024) -> None:
        self._max = max_event_bytes
        self._tail = b""
        self._scanned = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that `chunk` completes, blank lines included; joined with the tail they are
        the input. Raises EventTooLong."""
        buffer = self._tail + chunk if self._tail else chunk
        # A boundary may begin up to three bytes before the new ones (CR LF CR | LF).
        start, search = 0, max(self._scanned - 3, 0)
        events = []
        while (found := _BOUNDARY.search(buffer, search)) is not None:
            events.append(buffer[start : found.end()])
            start = search = found.end()
        self._tail = buffer[start:]
        self._scanned = len(self._tail)
        if self._scanned > self._max:
            raise EventTooLong(f"an event of more than {self._max} bytes")
        return events

    @property
    def tail(self) -> bytes:
        """What has no blank line yet."""
        return self._tail

    def finish(self) -> bytes | None:
        """At the end of the body: a last event whose blank line was a lone CR, if there is one.
        Anything else that is left is an incomplete event, which is to be dropped."""
        tail, self._tail, self._scanned = self._tail, b"", 0
        return tail if tail.endswith((b"\r\r", b"\n\r", b"\r\n\r")) else None


def event_data(event: bytes) -> bytes | None:
    """The joined `data` lines of one event; None for comments and other events without data."""
    # The common form first: one data line and nothing else.
    if event.startswith(b"data:") and event.count(b"\n") == 2 and b"\r" not in event:
        return event[6:-2] if event[5:6] == b" " else event[5:-2]
    lines = _DATA.findall(event.removeprefix(BOM))
    return b"\n".join(lines) if lines else None
