"""What the bytes of a JSON document show without parsing it: how deep it is nested, and whether one
of its keys stands there twice. Exact for well-formed documents; of others, up to where they break.

Works on `pieces`, the bytes between quotation marks: splitting there costs a tenth of a regular
expression over all of them, and each text stays in one piece.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_PLAIN = frozenset((b":", b",", b": ", b", ", b"", b":null,", b":true,", b":false,"))
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
# `model`, with any of its letters written as an escape.
_ESCAPED_MODEL = re.compile(
    rb"(?:m|\\u006[dD])(?:o|\\u006[fF])(?:d|\\u0064)(?:e|\\u0065)(?:l|\\u006[cC])"
)
_LONGEST_MODEL = len(rb"\u006d\u006f\u0064\u0065\u006c")


def pieces_of(raw: bytes) -> list[bytes]:
    """Outside of a string and inside of one in turn, without escaped backslashes and marks."""
    # Backslashes in pairs first: what is left before a mark escapes it.
    return raw.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')


def may_repeat_model(pieces: Sequence[bytes]) -> bool:
    """Whether two strings read `model`, however written: only then two keys can."""
    plain = pieces.count(b"model")
    escaped = sum(
        b"\\u00" in piece and _ESCAPED_MODEL.fullmatch(piece) is not None
        for piece in pieces
        if len(piece) <= _LONGEST_MODEL
    )
    return plain + escaped > 1


def depth_exceeds(raw: bytes, pieces: Sequence[bytes], limit: int) -> bool:
    """Nesting deeper than `limit`? Looking for so many brackets comes first: most bodies hold
    fewer."""
    if not _has_more_than(limit, raw):
        return False
    depth = 0
    for piece in pieces[::2]:
        if piece in _PLAIN:
            continue
        for byte in piece.translate(None, _NO_BRACKETS):
            depth += 1 if byte in b"[{" else -1
            if depth > limit:
                return True
    return False


def _has_more_than(count: int, raw: bytes) -> bool:
    """Opening brackets, of both kinds; memchr finds them at a tenth of the cost of counting."""
    for bracket in (b"{", b"["):
        at = raw.find(bracket)
        while at >= 0:
            count -= 1
            if count < 0:
                return True
            at = raw.find(bracket, at + 1)
    return False
