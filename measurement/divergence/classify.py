"""What two prompts that begin alike differ in first, and how much they have in common after it.

Texts in, a kind and a length out; nothing is kept. Looks at bounded windows only.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from prefold.measurement.divergence.record import Kind
from prefold.measurement.divergence.texts import (
    MAX_CHARS,
    Parts,
    Place,
    Text,
    common_length,
    texts_from,
)

BEFORE, AFTER = 32, 40
"""Characters around the place in which a timestamp is looked for."""
WORD_REACH = 64
RESUMES = 32
"""So many equal characters, or all up to both ends, are no chance."""
HOPS = 4
MAX_TEXTS = 64
ORDER_CHARS = 8192
"""Of each text, where passages in another order are looked for."""
PASSAGE_CHARS = 24
"""Lines that are shorter may be equal by chance."""
MAX_ENTRIES = 128
SYSTEM = ("system", "developer")

_DAYS = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?"
_MONTHS = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_CLOCK = (
    r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s?[ap]\.?m\b\.?)?"
    r"(?:\s?(?:z|utc|gmt)\b)?(?:\s?[+-]\d{2}:?\d{2})?"
)
_DATE = (
    rf"(?:\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|\d{{1,2}}[-/]\d{{1,2}}[-/]\d{{2,4}}"
    r"|\d{1,2}\.\d{1,2}\.\d{4}"
    rf"|(?:{_DAYS},?\s)?(?:\d{{1,2}}\s{_MONTHS}|{_MONTHS}\s\d{{1,2}})(?:st|nd|rd|th)?\b(?:,?\s\d{{4}})?"
    rf"|\b{_DAYS}\b|\b{_MONTHS}\s\d{{4}})"
)
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{32}\b", re.IGNORECASE)
TIMESTAMP = re.compile(
    rf"\b(?=[\dadfjmnostw])(?:{_DATE}(?:(?:t|,?\s(?:at\s)?){_CLOCK})?|{_CLOCK}"
    r"|1[4-9]\d{8}(?:\d{3}|\.\d+)?\b)",
    re.IGNORECASE,
)
NAMES = re.compile(rf"(?:{_DAYS}|{_MONTHS})\b", re.IGNORECASE)
DIGIT = re.compile(r"\d")
WORD_CHARS = string.ascii_letters + string.digits + "_+/=:.@#-"


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
    common = common_length(left[0].text, right[0].text)
    if left[0].role != right[0].role or left[0].part != right[0].part:
        return Parted(Kind.OTHER, 0)
    tools = place.part == 0 and len(one) > 1
    if order := _reordered(left, right, tools=tools):
        return order
    if tools:
        return Parted(Kind.OTHER, 0)
    return _in_text(left, right, common)


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
    if (ends := _blanks(mine, its, common)) is not None:
        return Parted(Kind.WHITESPACE, _after(left, right, *ends))
    named = _named(mine, its, common, common)
    if named is not None and (ends := _resumption(mine, its, *named[1:])) is not None:
        return Parted(named[0], _after(left, right, *ends))
    if moved := _moved_lines(mine, its, common):
        return Parted(Kind.DOCUMENT_ORDER, moved)
    if named is not None:
        return Parted(named[0], 0)
    return _unnamed(left, right, common)


def _unnamed(left: Sequence[Text], right: Sequence[Text], common: int) -> Parted:
    """Another word, or all that follows. What follows a system message is alike or not, whatever
    the rest of that is."""
    mine, its, role = left[0].text, right[0].text, left[0].role
    one, other = _word(mine, common), _word(its, common)
    ends: tuple[int, int] | None = None
    if one is not None and other is not None and _resumes(mine, its, one[1], other[1]):
        ends = one[1], other[1]
    elif role in SYSTEM:
        ends = len(mine), len(its)
    if ends is not None:
        return Parted(Kind.OTHER, _after(left, right, *ends))
    return Parted(Kind.MESSAGE if role else Kind.OTHER, 0)


def _named(mine: str, its: str, at: int, there: int) -> tuple[Kind, int, int] | None:
    """A kind that stands at these places in both, and where it ends."""
    one, other = _word(mine, at), _word(its, there)
    if one is None or other is None:
        return None
    words = mine[slice(*one)], its[slice(*other)]
    if words[0] == words[1]:
        return None
    uuids = _around(UUID, mine, at, *one), _around(UUID, its, there, *other)
    if uuids[0] and uuids[1]:
        return Kind.UUID, uuids[0], uuids[1]
    numbered = all(map(DIGIT.search, words))
    if numbered or all(map(NAMES.match, words)):
        spans = [(place - BEFORE, place + AFTER) for place in (at, there)]
        times = _around(TIMESTAMP, mine, at, *spans[0]), _around(TIMESTAMP, its, there, *spans[1])
        if times[0] and times[1]:
            return Kind.TIMESTAMP, times[0], times[1]
    return (Kind.NUMBER, one[1], other[1]) if numbered else None


def _resumption(mine: str, its: str, at: int, there: int) -> tuple[int, int] | None:
    """Where both go on alike, behind a few more of the same sort: a date, then a time."""
    for _ in range(HOPS):
        if _resumes(mine, its, at, there):
            return at, there
        shared = common_length(mine[at : at + AFTER], its[there : there + AFTER])
        named = _named(mine, its, at + shared, there + shared)
        if named is None:
            return None
        at, there = named[1:]
    return None


def _blanks(mine: str, its: str, at: int) -> tuple[int, int] | None:
    """Where both go on, if blanks are all that differs there."""
    ends = _behind_blanks(mine, at), _behind_blanks(its, at)
    if ends == (at, at) or not _resumes(mine, its, *ends):
        return None
    return ends


def _behind_blanks(text: str, at: int) -> int:
    end = min(at + AFTER, len(text))
    while at < end and text[at].isspace():
        at += 1
    return at


def _resumes(mine: str, its: str, at: int, there: int) -> bool:
    """Whether they are alike from there on, for a while or to both ends."""
    after = mine[at : at + RESUMES]
    return after == its[there : there + RESUMES] and (
        len(after) == RESUMES or len(mine) - at == len(its) - there
    )


def _word(text: str, at: int) -> tuple[int, int] | None:
    """The span of the word around a place; None: there is none, or it is a long one."""
    start, end = max(at - WORD_REACH, 0), at + WORD_REACH
    before, after = text[start:at], text[at:end]
    first = start + len(before.rstrip(WORD_CHARS))
    last = at + len(after) - len(after.lstrip(WORD_CHARS))
    if first == last or last == end or (first == start and start):
        return None
    return first, last


def _around(pattern: re.Pattern[str], text: str, at: int, start: int, end: int) -> int:
    """The end of what matches around the place; 0: nothing does."""
    for found in pattern.finditer(text, max(start, 0), end):
        if found.start() > at:
            break
        if found.end() >= at:
            return found.end()
    return 0


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


def _reordered(left: Sequence[Text], right: Sequence[Text], *, tools: bool) -> Parted | None:
    """Whole texts of one part in another order: tools, documents, parts of a message."""
    part = left[0].part
    ours, theirs = ([text for text in side if text.part == part] for side in (left, right))
    kind = Kind.TOOL_ORDER if tools else Kind.DOCUMENT_ORDER
    if tools:
        whole = [_canonical(text.text) for text in ours], [_canonical(text.text) for text in theirs]
    else:
        role = left[0].role
        whole = (
            [text.text for text in ours if text.role == role],
            [text.text for text in theirs if text.role == role],
        )
    lost = _in_other_order(*whole, same_order_counts=tools)
    if not lost:
        return None
    if sorted(whole[0]) == sorted(whole[1]):
        lost += _equal_texts(left[len(ours) :], right[len(theirs) :])
    return Parted(kind, lost)


def _canonical(tool: str) -> str:
    try:
        return msgspec.json.encode(msgspec.json.decode(tool), order="sorted").decode()
    except (msgspec.DecodeError, UnicodeEncodeError):
        return tool


def _in_other_order(
    ours: Sequence[str], theirs: Sequence[str], *, same_order_counts: bool = False
) -> int:
    """Characters of the entries that both have, if these are two or more in another order; 0
    otherwise. Of tools, whose members may be in another order, also in the same."""
    ours, theirs = ours[:MAX_ENTRIES], theirs[:MAX_ENTRIES]
    common = set(ours).intersection(theirs)
    common = {entry for entry in common if len(entry) >= PASSAGE_CHARS}
    if len(common) < (1 if same_order_counts else 2):
        return 0
    mine = list(dict.fromkeys(entry for entry in ours if entry in common))
    its = list(dict.fromkeys(entry for entry in theirs if entry in common))
    if mine == its and not (same_order_counts and ours == theirs):
        return 0
    return sum(map(len, common))


def _moved_lines(mine: str, its: str, at: int) -> int:
    """Characters of the lines after the place that both have, if their order differs."""
    start = mine.rfind("\n", max(at - ORDER_CHARS, 0), at) + 1
    if mine.count("\n", start, start + ORDER_CHARS) < 1:
        return 0
    ours = mine[start : start + ORDER_CHARS].split("\n")
    theirs = its[start : start + ORDER_CHARS].split("\n")
    lost = _in_other_order(ours, theirs)
    shorter = min(len(mine), len(its), start + ORDER_CHARS) - start
    return lost if 2 * lost >= shorter else 0


def _equal_texts(left: Sequence[Text], right: Sequence[Text]) -> int:
    if not (left and right):
        return 0
    if left[0] != right[0]:
        same = left[0][:2] == right[0][:2]
        return common_length(left[0].text, right[0].text) if same else 0
    return _after(left, right, 0, 0)
