"""What inside prose must stay whole: code, data, markup, addresses, numbers, what users mark.

By form only, in linear time: every search goes forward, and what failed is not searched again.
`markup` finds what spans many words; this module finds single words by how they are written.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

from prefold.compression.compressor import Spans, digest_of
from prefold.compression.markup import markup_spans, paired_spans
from prefold.compression.words import CJK

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """`keep` are pairs of markers between which nothing is cut, `quotes` pairs of quotation marks
    whose contents stay if they close within their paragraph. `digest` names these choices.
    """

    keep: Pairs = (("<keep>", "</keep>"),)
    quotes: Pairs = ()

    def __post_init__(self) -> None:
        if not all(opening and closing for opening, closing in (*self.keep, *self.quotes)):
            raise ValueError("markers must not be empty")

    @property
    def digest(self) -> str:
        return digest_of("protection", REVISION, asdict(self))


REVISION = "1"  # to be raised with every change of what is found
DEFAULT = Protection()


def protect(text: str, rules: Protection = DEFAULT) -> Spans:
    """The spans of `text` that must stay whole: in order, disjoint."""
    blocks = paired_spans(text, rules.keep, to_end=True)
    blocks += paired_spans(text, rules.quotes, to_end=False)
    blocks += markup_spans(text)
    blocks = _union(blocks)
    spans, at = list(blocks), 0
    for start, end in [*blocks, (len(text), len(text))]:
        spans += _single_words(text, at, start)
        at = end
    return tuple(_union(spans))


def _union(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    done: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if done and start < done[-1][1]:
            done[-1] = (done[-1][0], max(done[-1][1], end))
        elif start < end:
            done.append((start, end))
    return done


# Runs without white space, dashes that part words, or scripts that write without spaces.
RUNS = re.compile(rf"[^\s{CJK}–—―…、。，；：]+")
LEADING, TRAILING = "([{\"'“‘«「『（", ")]}\"'”’»」』）.,;:!?"
DIGIT = re.compile(r"\d")
CAMEL = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]{2}")
CODE = re.compile(r"\w[.:]{1,2}\w|\w\(\)|->|=>|[=|&$%^~\\#@_]")
HEXADECIMAL = re.compile(r"[0-9a-fA-F]{8,}")
EXTENSION = re.compile(r"/[^/]*\.\w{1,8}$")
# What makes a number mean something else when it is lost: after a space, or at once.
UNIT = re.compile(
    r"\s?(?:%|‰|°[CFK]?|[kMGTP]i?[Bb](?:/s|ps)?|[mckµn]?m[²³]?|[mkµ]?g|[mµn]?s|[mcd]?l|[kMG]?Hz"
    r"|[kMGm]?Wh?|k?J|kcal|[km]?V|m?A|mph|ft|in|lbs?|oz|mi|h|min|sec|[ap]m|[AP]M|[ap]\.m\."
    r"|percent|per cent|degrees|hundred|thousand|million|billion|trillion|dozen"
    r"|dollars|euros|pounds|yen|won|USD|EUR|GBP|JPY|KRW|CNY|tokens?|bytes"
    r"|seconds?|minutes?|hours?|days?|weeks?|months?|years?"
    r"|(?:kilo)?met(?:er|re)s?|miles?|feet|inch(?:es)?)(?!\w)(?:/\w{1,8})?"
)
CJK_UNIT = re.compile(
    "[十百千万萬亿億兆]{0,4}[年月日号號時时点點分秒元円圆圓人個个歳岁次回章米克台本度倍条项項辆名]?"
)


def _single_words(text: str, start: int, end: int) -> list[tuple[int, int]]:
    found = []
    after = start
    for run in RUNS.finditer(text, start, end):
        first, last = run.span()
        word = run[0]
        if last <= after or _is_plain(word):
            continue
        core = word.lstrip(LEADING)
        first += len(word) - len(core)
        whole, core = core, core.rstrip(TRAILING)
        if core.endswith("(") and whole[len(core) :].startswith(")"):
            core += ")"  # of a call
        if not _is_exact(core):
            continue
        last = first + len(core)
        if core[-1].isdigit():
            last = _with_unit(text, last, end)
        after = last
        found.append((first, last))
    return found


def _is_plain(word: str) -> bool:
    """Nearly all words: lower case, or with a capital."""
    if not (word.isalpha() and (word.islower() or word.istitle())):
        return False
    return len(word) < 8 or not HEXADECIMAL.fullmatch(word)


def _is_exact(word: str) -> bool:
    """Whether a word means nothing any more, or something else, when part of it is lost."""
    if DIGIT.search(word):
        return True
    if word.isalpha():
        return bool(CAMEL.search(word)) or bool(HEXADECIMAL.fullmatch(word))
    if CODE.search(word) or CAMEL.search(word):
        return True
    if word.startswith(("--", "/", "~/", "./", "../")) and len(word) > 1:
        return True
    if word.startswith("-") and word[1:2].isalpha() and len(word) == 2:
        return True  # a flag
    return word.count("/") > 1 or bool(EXTENSION.search(word))


def _with_unit(text: str, last: int, end: int) -> int:
    """Where a number that ends at `last` ends with its unit."""
    unit = UNIT.match(text, last, end) or CJK_UNIT.match(text, last, end)
    return unit.end() if unit else last
