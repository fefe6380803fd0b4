"""How much of a stream is kept: pure arithmetic on the ids and sizes of its entries.

Every replica sees all entries, so every one knows the same bound, and each that adds something
passes it along.
"""

from __future__ import annotations

from collections import deque

ENTRY_BYTES = 200
"""What an entry takes besides its content, about."""
PARTS = 256
"""The bound moves by steps of so many parts of the window: few numbers to hold, however many
entries there are."""

Id = tuple[int, int]
"""Milliseconds of Redis's clock, and a number within them."""
BEGIN: Id = (0, 0)


class Window:
    """Mutable: the entries of one stream, oldest first."""

    def __init__(self, *, max_bytes: int, ttl_s: float) -> None:
        self.max_bytes = max_bytes
        self.ttl_s = ttl_s
        self._parts: deque[tuple[Id, int]] = deque()
        """The id of the first entry of each part, and the bytes of the part."""
        self.bytes = 0

    def add(self, entry: Id, content_bytes: int) -> None:
        """The next one that was read."""
        size = content_bytes + ENTRY_BYTES
        self.bytes += size
        if self._parts and self._parts[-1][1] < self.max_bytes // PARTS:
            first, before = self._parts[-1]
            self._parts[-1] = first, before + size
        else:
            self._parts.append((entry, size))
        oldest = entry[0] - round(self.ttl_s * 1000)
        while len(self._parts) > 1 and (
            self.bytes > self.max_bytes or self._parts[1][0][0] <= oldest
        ):
            self.bytes -= self._parts.popleft()[1]

    def clear(self) -> None:
        """The stream is another one."""
        self._parts.clear()
        self.bytes = 0

    @property
    def least(self) -> Id:
        """The oldest entry that is to be kept."""
        return self._parts[0][0] if self._parts else BEGIN
