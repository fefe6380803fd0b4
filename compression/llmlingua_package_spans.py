"""A shortened text, found again in the text that it was made from: as spans of it. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby

from prefold.compression.compressor import CompressorFault, Spans
from prefold.compression.keeping import spans_of
from prefold.compression.words import Words

NOT_SPACE = re.compile(r"\S+")
REACH = 4000  # characters ahead in which more than a letter is looked for
LONGEST = 32  # letters that are looked for at once

Row = tuple[int, int, bool]


def kept_spans(text: str, short: str, protected: Spans) -> Spans:
    """The spans of `text` that hold the letters of `short`, in order, and all that is protected.

    White space is not compared, since decoded tokens have it elsewhere: what parts two kept words
    in `text` parts them in the result. Nor is a letter's width: some tokenizers even it out. Raises
    CompressorFault where the letters of `short` are no subsequence of those of `text`.
    """
    source, pieces = _folded(text), NOT_SPACE.findall(_folded(short))
    latest = _latest(source, "".join(pieces))
    marks = bytearray(len(text))
    at = done = 0
    for piece in pieces:
        while piece:
            start, length = _next(source, piece, at, latest[done : done + LONGEST])
            at = start + length
            marks[start:at] = b"\x01" * length
            done += length
            piece = piece[length:]
    return spans_of(*Words.of_rows(text, list(_rows(text, marks, protected))))


def _latest(source: str, letters: str) -> list[int]:
    """For each letter the last place that leaves room for those after it."""
    places = []
    at = len(source)
    for letter in reversed(letters):
        at = source.rfind(letter, 0, at)
        if at < 0:
            raise CompressorFault("the package's output is no subsequence of the text")
        places.append(at)
    return places[::-1]


def _next(source: str, piece: str, at: int, latest: list[int]) -> tuple[int, int]:
    """Where as long a beginning of `piece` as can be stands next in `source`, and its length.

    `latest` are the last places of the piece's letters; there is one for its first from `at` on.
    """
    for length in range(min(len(piece), LONGEST), 1, -1):
        most = min(latest[length - 1] + 1, at + length + REACH)
        found = source.find(piece[:length], at, most)
        if found >= 0:
            return found, length
    return source.index(piece[0], at), 1


def _folded(text: str) -> str:
    """Of the same length, full-width letters and the like as plain ones."""
    if text.isascii():
        return text
    return "".join([letter if letter.isascii() else _plain(letter) for letter in text])


@lru_cache(maxsize=4096)
def _plain(letter: str) -> str:
    plain = unicodedata.normalize("NFKC", letter)
    return plain if len(plain) == 1 else letter


def _rows(text: str, marks: bytearray, protected: Spans) -> Iterator[Row]:
    """Pieces without white space, and protected spans: start, end, kept."""
    at = 0
    for start, end in (*protected, (len(text), len(text))):
        for found in NOT_SPACE.finditer(text, at, start):
            place = found.start()
            for kept, run in groupby(marks[place : found.end()]):
                length = len(list(run))
                yield place, place + length, kept == 1
                place += length
        if start < end:
            yield start, end, True
        at = end
