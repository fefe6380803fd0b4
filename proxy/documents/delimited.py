"""Documents between delimiters in a text, and where they are in the JSON string that holds it.

Knows strings only, not what they are part of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# A pair of surrogates is one character of the text; whatever else is escaped is one each.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)"
)


class Span(NamedTuple):
    """Characters of a text."""

    start: int
    end: int


def spans(text: str, start: str, end: str) -> list[Span]:
    """From each `start` to the next `end`, both included; none at all where another `start` comes
    before that: which of them is meant cannot be told."""
    found = []
    at = text.find(start)
    while at >= 0:
        close = text.find(end, at + len(start))
        if close < 0:
            break
        if text.find(start, at + len(start), close) >= 0:
            return []
        found.append(Span(at, close + len(end)))
        at = text.find(start, close + len(end))
    return found


def adjacent(text: str, one: Span, after: Span) -> bool:
    """Whether nothing but white space stands between the two."""
    between = text[one.end : after.start]
    return not between or between.isspace()


def places(literal: str, cuts: Sequence[int]) -> list[int]:
    """Where the characters of a text, given by their rising numbers, begin in the JSON string
    `literal` that it was read from."""
    escapes: Iterator[re.Match[str]] = _ESCAPE.finditer(literal)
    shift = 1  # the quotation mark
    escape = next(escapes, None)
    found = []
    for cut in cuts:
        while escape is not None and escape.start() - shift < cut:
            shift += len(escape.group()) - 1
            escape = next(escapes, None)
        found.append(cut + shift)
    return found
