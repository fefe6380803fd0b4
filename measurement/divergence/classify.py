"""What two prompts that begin alike differ in first, and how much they have in common after it.

Texts in, a kind and a length out; nothing is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from prefold.measurement.divergence.orders import in_other_order, moved_lines, tools_in_other_order
from prefold.measurement.divergence.record import Kind
from prefold.measurement.divergence.spans import blanks, named, resumes, resumption, word
from prefold.measurement.divergence.texts import (
    MAX_CHARS,
    Parts,
    Place,
    Text,
    common_length,
    texts_from,
)

MAX_TEXTS = 64
SYSTEM = ("system", "developer")


class Parted(NamedTuple):
    """`lost_chars`: in both, from behind what differs up to where they differ again."""

    kind: Kind
    lost_chars: int


def parted(one: Parts, other: Parts, place: Place) -> Parted | None:
    """What they differ in first; `place` is their first difference. None: in nothing that is
    looked at, such as images."""
    left = list(islice(texts_from(one, place), MAX_TEXTS))
    right = list(islice(texts_from(other, place), MAX_TEXTS))
    at = _first_unequal(left, right)
    if at is None:
        return None
    left, right = left[at:], right[at:]
    if left[0][:2] != right[0][:2]:
        return Parted(Kind.OTHER, 0)
    tools = place.part == 0 and len(one) > 1
    if order := _reordered(left, right, tools=tools):
        return order
    if tools:
        return Parted(Kind.OTHER, 0)
    return _in_text(left, right, common_length(left[0].text, right[0].text))


def _first_unequal(left: Sequence[Text], right: Sequence[Text]) -> int | None:
    for at, (mine, its) in enumerate(zip(left, right, strict=False)):
        if mine != its:
            same = mine[:2] == its[:2]
            if same and common_length(mine.text, its.text) == MAX_CHARS:
                return None
            return at
    return None


def _in_text(left: Sequence[Text], right: Sequence[Text], common: int) -> Parted:
    mine, its = left[0].text, right[0].text
    if (ends := blanks(mine, its, common)) is not None:
        return Parted(Kind.WHITESPACE, _after(left, right, *ends))
    found = named(mine, its, common, common)
    if found is not None and (ends := resumption(mine, its, *found[1:])) is not None:
        return Parted(found[0], _after(left, right, *ends))
    if moved := moved_lines(mine, its, common):
        return Parted(Kind.DOCUMENT_ORDER, moved)
    if found is not None:
        return Parted(found[0], 0)
    return _unnamed(left, right, common)


def _unnamed(left: Sequence[Text], right: Sequence[Text], common: int) -> Parted:
    """Another word, or all that follows. What follows a system message is alike or not, whatever
    the rest of that is."""
    mine, its, role = left[0].text, right[0].text, left[0].role
    one, other = word(mine, common), word(its, common)
    ends: tuple[int, int] | None = None
    if one is not None and other is not None and resumes(mine, its, one[1], other[1]):
        ends = one[1], other[1]
    elif role in SYSTEM:
        ends = len(mine), len(its)
    if ends is not None:
        return Parted(Kind.OTHER, _after(left, right, *ends))
    return Parted(Kind.MESSAGE if role else Kind.OTHER, 0)


def _reordered(left: Sequence[Text], right: Sequence[Text], *, tools: bool) -> Parted | None:
    """Whole texts that follow each other: tools, documents, parts of a message."""
    ours, theirs = (_alike(side) for side in (left, right))
    lost = tools_in_other_order(ours, theirs) if tools else in_other_order(ours, theirs)
    if not lost:
        return None
    if len(ours) == len(theirs) and (tools or sorted(ours) == sorted(theirs)):
        lost += _equal_texts(left[len(ours) :], right[len(theirs) :])
    return Parted(Kind.TOOL_ORDER if tools else Kind.DOCUMENT_ORDER, lost)


def _alike(texts: Sequence[Text]) -> list[str]:
    """As many as are of the same part and role as the first."""
    return [one.text for one in takewhile(lambda one: one[:2] == texts[0][:2], texts)]


def _after(left: Sequence[Text], right: Sequence[Text], at: int, there: int) -> int:
    """Characters in common from there on, through the texts that follow."""
    mine, its = left[0].text, right[0].text
    lost = common_length(mine, its, at, there)
    if at + lost < len(mine) or there + lost < len(its):
        return lost
    for one, other in zip(left[1:], right[1:], strict=False):
        if one != other:
            same = one[:2] == other[:2]
            return lost + (common_length(one.text, other.text) if same else 0)
        lost += len(one.text)
        if lost > MAX_CHARS:
            break
    return lost


def _equal_texts(left: Sequence[Text], right: Sequence[Text]) -> int:
    if not (left and right):
        return 0
    if left[0] != right[0]:
        same = left[0][:2] == right[0][:2]
        return common_length(left[0].text, right[0].text) if same else 0
    return _after(left, right, 0, 0)
