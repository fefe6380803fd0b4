"""Changing members of a JSON object in its bytes; every other byte stays what it was.

Works on the text with the standard library's scanners, which give the end of each value, and
accept what engines accept (duplicates, NaN, lone surrogates, integers of any size).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

_SPACE = re.compile(r"[ \t\n\r]*")
# Integers as text: there is a limit on the digits that Python converts.
_DECODER = json.JSONDecoder(parse_int=str, strict=False)


@dataclass(frozen=True, slots=True)
class Member:
    """Offsets in characters: the value is text[start:end]."""

    key: str
    start: int
    end: int


def members(text: str) -> Iterator[Member]:
    """Top-level members in order, duplicates included; ValueError if `text` is no JSON object."""
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        raise ValueError("not a JSON object")
    at = _skip(text, at + 1)
    while text[at : at + 1] == '"':
        key, at = _DECODER.raw_decode(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise ValueError("expected a colon")
        start = _skip(text, at + 1)
        try:
            _, end = _DECODER.raw_decode(text, start)
        except RecursionError:
            raise ValueError("nested too deep") from None
        yield Member(key, start, end)
        at = _skip(text, end)
        if text[at : at + 1] != ",":
            break
        at = _skip(text, at + 1)
        if text[at : at + 1] != '"':
            raise ValueError("expected a member")
    if text[at : at + 1] != "}":
        raise ValueError("expected the end of the object")


def replace_member(raw: bytes, key: str, value: str) -> bytes:
    """`value` (JSON text) in place of every member `key`; added at the front if there is none."""
    text = raw.decode("utf-8")
    found = [member for member in members(text) if member.key == key]
    if not found:
        brace = text.index("{") + 1
        rest = text[_skip(text, brace) :]
        comma = "" if rest.startswith("}") else ","
        return f"{text[:brace]}{json.dumps(key)}:{value}{comma}{text[brace:]}".encode()
    pieces, at = [], 0
    for member in found:
        pieces += [text[at : member.start], value]
        at = member.end
    return "".join([*pieces, text[at:]]).encode()


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()
