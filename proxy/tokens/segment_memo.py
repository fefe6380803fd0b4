"""A byte-bounded memo of encoded pieces of prompts, least recently used out first."""

from collections import OrderedDict
from sys import getsizeof

from prefold.proxy.tokens.token_libraries import TokenIds

# What CPython needs for the dictionary's entry and the array's header, about.
_ENTRY_BYTES = 250


class SegmentMemo:
    """Text to its ids. The key is the text itself: a hash that collides would be a wrong id."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[str, TokenIds] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, text: str) -> TokenIds | None:
        """Look up, and count as used."""
        ids = self._entries.get(text)
        if ids is not None:
            self._entries.move_to_end(text)
        return ids

    def put(self, text: str, ids: TokenIds) -> None:
        """Remember, unless it alone is over the bound; drop what was not used for longest."""
        size = _size(text, ids)
        if size > self._max_bytes or text in self._entries:
            return
        self._entries[text] = ids
        self.bytes += size
        while self.bytes > self._max_bytes:
            self.bytes -= _size(*self._entries.popitem(last=False))


def _size(text: str, ids: TokenIds) -> int:
    return getsizeof(text) + ids.nbytes + _ENTRY_BYTES
