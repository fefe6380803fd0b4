"""What a JSON document shows beside the members that are read of it: how deep it is nested, and
whether one of its keys may stand there twice.

Long texts are what makes a request long, so nothing here looks at each byte of one unless it must.
`pieces`, the bytes between quotation marks, are for when it must.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

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


def may_repeat_model(raw: bytes, members: Mapping[str, msgspec.Raw] | None) -> bool:
    """Whether two keys may read `model`, however written. `members` are those of the object, the
    last one for each key: where they fill `raw`, as clients write it, there is no other one."""
    if members is not None and fills(raw, members):
        return False
    pieces = pieces_of(raw)
    plain = pieces.count(b"model")
    escaped = sum(
        b"\\u00" in piece and _ESCAPED_MODEL.fullmatch(piece) is not None
        for piece in pieces
        if len(piece) <= _LONGEST_MODEL
    )
    return plain + escaped > 1


def fills(raw: bytes, members: Mapping[str, msgspec.Raw]) -> bool:
    """Whether the object is these members and no more, with spaces where Python's json puts them,
    or with none."""
    size = 0
    for key, value in members.items():
        size += len(key) + memoryview(value).nbytes
    rest, count = len(raw) - size, len(members)
    # Quotes, colons, commas and braces; with spaces there is room for one more short member.
    return rest == 4 * count + 1 or (rest == 6 * count and _is_spaced(raw, members))


def _is_spaced(raw: bytes, members: Mapping[str, msgspec.Raw]) -> bool:
    at = 1
    for key, value in members.items():
        for expected in (b'"%b": ' % key.encode("utf-8", "surrogatepass"), bytes(value)):
            if not raw.startswith(expected, at):
                return False
            at += len(expected)
        at += 2
    return at - 1 == len(raw)


def may_exceed(raw: bytes, limit: int) -> bool:
    """Whether there are brackets enough to be nested deeper than `limit`; most bodies hold fewer,
    and memchr finds them at a tenth of the cost of counting."""
    left = limit
    for bracket in (b"{", b"["):
        at = raw.find(bracket)
        while at >= 0:
            left -= 1
            if left < 0:
                return True
            at = raw.find(bracket, at + 1)
    return False


def text_exceeds(raw: bytes, limit: int) -> bool:
    """Nesting of a document deeper than `limit`? Exact if it is well formed; of others, up to where
    they break."""
    return _pieces_exceed(pieces_of(raw), limit)


def value_exceeds(value: dict[str, Any] | list[Any], limit: int) -> bool:
    """The same of what was parsed, level by level."""
    level = [value]
    for _ in range(limit):
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _pieces_exceed(pieces: Sequence[bytes], limit: int) -> bool:
    depth = 0
    for piece in pieces[::2]:
        for byte in piece.translate(None, _NO_BRACKETS):
            depth += 1 if byte in b"[{" else -1
            if depth > limit:
                return True
    return False
