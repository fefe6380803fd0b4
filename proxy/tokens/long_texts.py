"""Long texts of messages, each known by a short mark that stands for it while a chat is rendered.

The same long system prompt or document comes again with each question. Rendering it, cutting the
result and looking the pieces up would read it five times over.
"""

import re
from collections import OrderedDict
from collections.abc import Sequence
from secrets import token_hex
from sys import getsizeof
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from prefold.proxy.tokens.chat_request import Message

LONG = 1024
"""Characters from which on a mark is cheaper."""
_MARK = re.compile("\ue000[0-9a-f]{16}\ue001")
UNMARKED = "x-anthropic-billing-header"  # vLLM looks for it in system messages
_ENTRY_BYTES = 400
MAX_BEGINNINGS = 65_536


def hides_start(text: str, start: str) -> bool:
    """Whether the first mark in `text` stands where the engine looks for its `start`: then it may
    be the marked text that decides whether it is put there."""
    mark = _MARK.search(text)
    if mark is None or not start:
        return False
    return start.startswith(text[: mark.start()].removeprefix(start))


def beginning_key(text: str) -> int:
    """The same for texts that have the first LONG characters in common."""
    return xxh3_64_intdigest(text[:LONG].encode("utf-8", "surrogatepass"))


class _Short(NamedTuple):
    short: str
    mark: str


class LongTexts:
    """Holds at most `max_bytes`, the least recently used go first. Marks are random, so that no
    client can write one, and are never used twice."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._shorts: OrderedDict[str, _Short] = OrderedDict()
        """By the whole content, whose hash is the costly part: a content that comes again is mostly
        the same object, which knows its hash."""
        self._texts: dict[str, str] = {}
        self._beginnings: OrderedDict[int, None] = OrderedDict()
        self._new: set[str] = set()

    def __len__(self) -> int:
        return len(self._shorts)

    def marked(self, messages: Sequence[Message]) -> list[Message]:
        """The messages, with marks for contents that are long; white space at their ends stays
        beside the mark, since templates trim."""
        return [
            {**message, "content": self.short(content)}
            if isinstance(content := message.get("content"), str)
            and len(content) >= LONG
            and not content.startswith(UNMARKED)
            else message
            for message in messages
        ]

    def whole(self, piece: str) -> str:
        """With the texts in place of their marks; what was marked last is here."""
        return _MARK.sub(lambda mark: self._texts.get(mark[0], mark[0]), piece)

    def begins_anew(self, piece: str) -> bool:
        """Whether a text in it was marked just now, and begins as none before it did."""
        return bool(self._new) and any(mark in self._new for mark in _MARK.findall(piece))

    def short(self, content: str) -> str:
        """With a mark in place of all that is not white space at its ends, if it is long."""
        if len(content) < LONG:
            return content
        known = self._shorts.get(content)
        if known is not None:
            self._shorts.move_to_end(content)
            return known.short
        text = content.strip()
        if len(text) < LONG:
            return content
        mark = f"\ue000{token_hex(8)}\ue001"
        start = content.index(text[0])  # nothing but white space is before it
        short = content[:start] + mark + content[start + len(text) :]
        self._shorts[content] = _Short(short, mark)
        self._texts[mark] = text
        self._bytes += _size(content, text)
        if self._note_beginning(text):
            self._new.add(mark)
        return short

    def _note_beginning(self, text: str) -> bool:
        """Whether it is a new one."""
        key = beginning_key(text)
        known = key in self._beginnings
        self._beginnings[key] = None
        self._beginnings.move_to_end(key)
        if len(self._beginnings) > MAX_BEGINNINGS:
            self._beginnings.popitem(last=False)
        return not known

    def trim(self) -> None:
        """Back to the bound, once the marks of a request are no longer needed."""
        self._new.clear()
        while self._bytes > self._max_bytes:
            content, forgotten = self._shorts.popitem(last=False)
            self._bytes -= _size(content, self._texts.pop(forgotten.mark))


def _size(content: str, text: str) -> int:
    both = getsizeof(content) + getsizeof(text)
    return _ENTRY_BYTES + (getsizeof(text) if text is content else both)
