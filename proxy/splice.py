"""Where the members of a JSON object and the elements of a list are in its text, and changing them;
every other byte stays what it was.

Works on the text with the standard library's scanners, which give the end of each value, and
accept what engines accept (duplicates, NaN, lone surrogates, integers of any size).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_SPACE = re.compile(r"[ \t\n\r]*")
# Integers as text: there is a limit on the digits that Python converts.
_DECODER = json.JSONDecoder(parse_int=str, strict=False)


@dataclass(frozen=True, slots=True)
class Member:
    """Offsets in characters: `value` is what text[start:end] says."""

    key: str
    start: int
    end: int
    value: Any
    """Its integers are texts."""


@dataclass(frozen=True, slots=True)
class Element:
    """As a Member."""

    start: int
    end: int
    value: Any


def members(text: str, at: int = 0) -> Iterator[Member]:
    """Of the object that begins at `at`, in order, duplicates included; ValueError if that is no
    JSON object."""
    at = _skip(text, at)
    if text[at : at + 1] != "{":
        raise ValueError("not a JSON object")
    at = _skip(text, at + 1)
    while text[at : at + 1] == '"':
        key, at = _DECODER.raw_decode(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise ValueError("expected a colon")
        start = _skip(text, at + 1)
        value, end = _value(text, start)
        yield Member(key, start, end, value)
        at = _skip(text, end)
        if text[at : at + 1] != ",":
            break
        at = _skip(text, at + 1)
        if text[at : at + 1] != '"':
            raise ValueError("expected a member")
    if text[at : at + 1] != "}":
        raise ValueError("expected the end of the object")


def elements(text: str, at: int) -> Iterator[Element]:
    """Of the list that begins at `at`, in order; ValueError if that is no JSON list."""
    if text[at : at + 1] != "[":
        raise ValueError("not a JSON list")
    at = _skip(text, at + 1)
    if text[at : at + 1] == "]":
        return
    while True:
        value, end = _value(text, at)
        yield Element(at, end, value)
        at = _skip(text, end)
        if text[at : at + 1] == "]":
            return
        if text[at : at + 1] != ",":
            raise ValueError("expected the end of the list")
        at = _skip(text, at + 1)


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


def _value(text: str, at: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()
