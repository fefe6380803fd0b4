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
        self._pieces: list[bytes] = []  # joined only when they end: an event may be megabytes
        self._size = 0
        self._edge = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that `chunk` completes, blank lines included; joined with the tail they are
        the input. Raises EventTooLong."""
        usual = chunk.endswith(b"\n\n") and not chunk.endswith(b"\n\n\n") and b"\r" not in chunk
        if usual and not self._size:
            # By far the most: whole events with the usual line ends.
            return [event + b"\n\n" for event in chunk[:-2].split(b"\n\n")]
        # A boundary is at most four bytes (CR LF CR LF), so it begins in the last three or later.
        if _BOUNDARY.search(self._edge + chunk) is None:
            return self._hold(chunk)
        buffer = b"".join([*self._pieces, chunk])
        start = 0
        search = max(self._size - len(self._edge), 0)
        events = []
        while (found := _BOUNDARY.search(buffer, search)) is not None:
            events.append(buffer[start : found.end()])
            start = search = found.end()
        self._pieces, self._size, self._edge = [], 0, b""
        self._hold(buffer[start:])
        return events

    def _hold(self, piece: bytes) -> list[bytes]:
        self._pieces.append(piece)
        self._size += len(piece)
        self._edge = (self._edge + piece)[-3:]
        if self._size > self._max:
            raise EventTooLong(f"an event of more than {self._max} bytes")
        return []

    @property
    def tail(self) -> bytes:
        """What has no blank line yet."""
        return b"".join(self._pieces)

    def finish(self) -> bytes | None:
        """At the end of the body: a last event whose blank line was a lone CR, if there is one.
        Anything else that is left is an incomplete event, which is to be dropped."""
        tail, self._pieces = self.tail, []
        return tail if tail.endswith((b"\r\r", b"\n\r")) else None


def event_data(event: bytes) -> bytes | None:
    """The joined `data` lines of one event; None for comments and other events without data."""
    # The common form first: one data line and nothing else.
    if event.startswith(b"data:") and event.count(b"\n") == 2 and b"\r" not in event:
        return event[6:-2] if event[5:6] == b" " else event[5:-2]
    lines = _DATA.findall(event.removeprefix(BOM))
    return b"\n".join(lines) if lines else None
