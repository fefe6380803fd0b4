"""What stands at a place of two texts, and where both go on alike behind it.

Looks at windows of some dozen characters, with patterns that cannot run away in them.
"""

from __future__ import annotations

import re
import string

from prefold.measurement.divergence.record import Kind
from prefold.measurement.divergence.texts import common_length

BEFORE, AFTER = 32, 40
"""Characters around the place in which a timestamp is looked for."""
WORD_REACH = 64
UUID_CHARS = 32
RESUMES = 32
"""So many equal characters, or all up to both ends, are no chance."""
HOPS = 4

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


def named(mine: str, its: str, at: int, there: int) -> tuple[Kind, int, int] | None:
    """A kind that stands at these places in both, and where it ends."""
    one, other = word(mine, at), word(its, there)
    if one is None or other is None:
        return None
    words = mine[slice(*one)], its[slice(*other)]
    if words[0] == words[1]:
        return None
    if min(map(len, words)) >= UUID_CHARS:
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


def resumption(mine: str, its: str, at: int, there: int) -> tuple[int, int] | None:
    """Where both go on alike, behind a few more of the same sort: a date, then a time."""
    for _ in range(HOPS):
        if resumes(mine, its, at, there):
            return at, there
        shared = common_length(mine[at : at + AFTER], its[there : there + AFTER])
        found = named(mine, its, at + shared, there + shared)
        if found is None:
            return None
        at, there = found[1:]
    return None


def blanks(mine: str, its: str, at: int) -> tuple[int, int] | None:
    """Where both go on, if blanks are all that differs there."""
    ends = _behind_blanks(mine, at), _behind_blanks(its, at)
    if ends == (at, at) or not resumes(mine, its, *ends):
        return None
    return ends


def _behind_blanks(text: str, at: int) -> int:
    end = min(at + AFTER, len(text))
    while at < end and text[at].isspace():
        at += 1
    return at


def resumes(mine: str, its: str, at: int, there: int) -> bool:
    """Whether they are alike from there on, for a while or to both ends."""
    after = mine[at : at + RESUMES]
    return after == its[there : there + RESUMES] and (
        len(after) == RESUMES or len(mine) - at == len(its) - there
    )


def word(text: str, at: int) -> tuple[int, int] | None:
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
