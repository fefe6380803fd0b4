"""What waits to be written to Redis: gathered, sealed, and bounded in bytes. No I/O.

What does not fit is dropped from the old end, since the newest placements are worth the most. The
numbers of entries show others the gap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prefold.proxy.replicas.messages import Stream, Told, encode, size, stream_of
from prefold.proxy.replicas.seal import Seal

ENTRY_BYTES = 64 * 1024
"""Of one entry, about: what is taken in at one go by those who read it."""
Pending = Callable[[], Told | None]
"""Makes a message when it is sent; None: there is nothing to tell after all."""


@dataclass(frozen=True, slots=True)
class Entry:
    stream: Stream
    number: int
    content: bytes
    messages: int


class Outbox:
    """Mutable."""

    def __init__(self, seal: Seal, max_bytes: int) -> None:
        self.sent = 0
        """Messages that Redis took."""
        self.dropped = 0
        """Messages that it will never see."""
        self._seal = seal
        self._max_bytes = max_bytes
        self._pending: list[Pending] = []
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self._numbers = dict.fromkeys(Stream, 0)

    @property
    def bytes(self) -> int:
        return self._bytes

    def put(self, pending: Pending) -> None:
        self._pending.append(pending)

    def gather(self) -> None:
        """Makes entries of what was put since the last time, in its order within each stream."""
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        open_ones: dict[Stream, tuple[list[Told], int]] = {}
        for make in pending:
            message = make()
            if message is None:
                continue
            stream = stream_of(message)
            messages, total = open_ones.get(stream, ([], 0))
            messages.append(message)
            total += size(message)
            if total < ENTRY_BYTES:
                open_ones[stream] = messages, total
            else:
                open_ones.pop(stream, None)
                self._add(self.sealed(stream, messages))
        for stream, (messages, _) in open_ones.items():
            self._add(self.sealed(stream, messages))

    def sealed(self, stream: Stream, messages: Sequence[Told]) -> Entry:
        """An entry that is not kept here."""
        number = self._numbers[stream] = self._numbers[stream] + 1
        content = self._seal.close(stream, number, encode(messages))
        return Entry(stream, number, content, len(messages))

    def first(self, max_bytes: int) -> list[Entry]:
        """The oldest entries, at least one if there is any. They stay until they are `done`."""
        found: list[Entry] = []
        total = 0
        for entry in self._entries:
            total += len(entry.content)
            if found and total > max_bytes:
                break
            found.append(entry)
        return found

    def done(self, entries: Sequence[Entry]) -> None:
        """Redis took them. Some may have been dropped meanwhile."""
        self.sent += sum(entry.messages for entry in entries)
        numbers = {(entry.stream, entry.number) for entry in entries}
        while self._entries and (self._entries[0].stream, self._entries[0].number) in numbers:
            self._bytes -= len(self._entries.popleft().content)

    def _add(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._bytes += len(entry.content)
        while self._bytes > self._max_bytes and len(self._entries) > 1:
            old = self._entries.popleft()
            self._bytes -= len(old.content)
            self.dropped += old.messages
