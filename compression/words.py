"""A text as the words that may be kept or cut: where they are, and where sentences end.

Words are what lies between spaces; Chinese and Japanese are cut into words by a function that the
compressor gives. A protected span is one word, with what sticks to it. Linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prefold.compression.compressor import Spans

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
# The lengths of the words of a run of Chinese or Japanese; their sum is the run's length.
Segment = Callable[[str], Sequence[int]]

# Character classes. Han, kana, and what is written within their words:
CJK = (
    "\u3005-\u3007\u3031-\u3035\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
OPENING = r"(\[{<“‘«〈《「『【〔（［｛¿¡"
# Every other mark that is part of no word; joiners and variation selectors of emoji are not here.
OTHER = (
    r"!-'*-/:;=>?@\\\]^`|}~_¦¶·»\u2010-\u2017’\u201a\u201b”-‧\u2030-\u205e"
    r"、。〉》」』】〕\u301c-\u301f・\uff01-\uff07\uff09-\uff0f\uff1a-\uff20\uff3d-\uff40"
    r"\uff5c-\uff65।॥؟،؛۔"
)
PIECES = re.compile(
    # Each class is a loop over characters of its own: no text makes this backtrack.
    rf"(?P<space>\s+)|(?P<cjk>[{CJK}]+)|(?P<open>[{OPENING}]+)|(?P<mark>[{OTHER}]+)"
    rf"|[^\s{CJK}{OPENING}{OTHER}]+(?:['\u2019.-][^\s{CJK}{OPENING}{OTHER}]+)*"
)
SENTENCE_ENDS = ".!?…。！？｡؟۔।॥"
PARAGRAPH = re.compile(r"\n[^\S\n]*\n")
ENDS_SENTENCE = re.compile(rf"[{SENTENCE_ENDS}][^\w\s]*$")
LONG = 240  # characters: a protected span from here on parts what is before it from what follows


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The words of `text`, one row each, in order.

    `spaces[i]` is where the white space before word i begins. `tails[i]` is where the mark that
    ends a sentence begins in word i, and `ends[i]` if none does. `breaks[i]` says that no group of
    words holds both i - 1 and i, since a paragraph ends there. `forced[i]`: protected.
    """

    text: str
    spaces: Ints
    starts: Ints
    ends: Ints
    tails: Ints
    breaks: Bools
    forced: Bools

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def of_rows(cls, text: str, rows: Sequence[tuple[int, int, bool]]) -> tuple[Words, Bools]:
        """Words judged elsewhere: start, end, and whether it is kept, in order. Each one's
        space begins where the one before it ends. And which are kept."""
        starts = np.array([start for start, _, _ in rows], dtype=np.int64)
        ends = np.array([end for _, end, _ in rows], dtype=np.int64)
        none = np.zeros(len(rows), dtype=np.bool_)
        words = cls(
            text=text,
            spaces=np.concatenate([np.zeros(1, dtype=np.int64), ends])[: len(rows)],
            starts=starts,
            ends=ends,
            tails=ends,
            breaks=none,
            forced=none,
        )
        return words, np.array([kept for _, _, kept in rows], dtype=np.bool_)


def one_word(run: str) -> Sequence[int]:
    """The Segment of who knows no better: characters, but runs of kana stay whole."""
    return [
        len(part) for part in re.findall(r"[\u3041-\u309f]+|[\u30a0-\u30ff]+|.", run, re.DOTALL)
    ]


def split(text: str, protected: Spans, segment: Segment = one_word) -> Words:
    """Every character of `text` that is not white space is in exactly one word."""
    rows = _Rows(text)
    at = 0
    for start, end in protected:
        rows.add_prose(at, start, segment)
        rows.add_protected(start, end)
        at = end
    rows.add_prose(at, len(text), segment)
    return rows.words()


class _Rows:
    """Words as they are found. A row: [start of the space before, start, end, forced]."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.rows: list[list[int]] = []
        self.space = 0  # where the white space before the next word begins
        self.opened = -1  # where brackets and marks begin that wait for their word

    def add_prose(self, start: int, end: int, segment: Segment) -> None:
        for piece in PIECES.finditer(self.text, start, end):
            at, after = piece.span()
            match piece.lastgroup:
                case "space":
                    self._close_opened(at)
                    self.space = at
                    continue
                case "mark" if self._sticks(at):
                    self.rows[-1][2] = self.space = after
                case "mark" | "open":
                    if self.opened < 0:
                        self.opened = at
                case "cjk":
                    for length in segment(piece[0]):
                        self._add(at, at + length)
                        at += length
                case _:
                    if self._sticks(at) and self.text[at - 1].isalnum() and self.rows[-1][3]:
                        self.rows[-1][2] = self.space = after
                    else:
                        self._add(at, after)

    def add_protected(self, start: int, end: int) -> None:
        self._add(start, end, forced=1)

    def _sticks(self, at: int) -> bool:
        """Whether what begins here continues the word before."""
        return self.opened < 0 and bool(self.rows) and self.rows[-1][2] == at

    def _add(self, start: int, end: int, forced: int = 0) -> None:
        start = start if self.opened < 0 else self.opened
        self.opened = -1
        self.rows.append([min(self.space, start), start, end, forced])
        self.space = end

    def _close_opened(self, at: int) -> None:
        if self.opened >= 0:
            self._add(self.opened, at)

    def words(self) -> Words:
        self._close_opened(len(self.text))
        table = np.array(self.rows, dtype=np.int64).reshape(-1, 4)
        spaces, starts, ends, forced = (np.ascontiguousarray(column) for column in table.T)
        return Words(
            text=self.text,
            spaces=spaces,
            starts=starts,
            ends=ends,
            tails=_tails(self.text, starts, ends),
            breaks=_breaks(self.text, spaces, starts, ends, forced),
            forced=forced.astype(np.bool_),
        )


def _tails(text: str, starts: Ints, ends: Ints) -> Ints:
    tails = ends.copy()
    for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        if text[end - 1].isalnum():  # nearly all words
            continue
        found = ENDS_SENTENCE.search(text, max(start, end - 8), end)
        if found:
            tails[row] = found.start()
    return tails


def _breaks(text: str, spaces: Ints, starts: Ints, ends: Ints, forced: Ints) -> Bools:
    breaks: Any = np.zeros(len(starts), dtype=np.bool_)
    for row in np.flatnonzero(starts - spaces >= 2):
        breaks[row] = PARAGRAPH.search(text, spaces[row], starts[row]) is not None
    long = (forced == 1) & (ends - starts >= LONG)
    breaks |= long
    breaks[1:] |= long[:-1]
    if len(breaks):
        breaks[0] = True
    return np.asarray(breaks, dtype=np.bool_)
