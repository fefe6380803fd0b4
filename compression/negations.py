"""Words that turn a sentence into its opposite when they are lost, in a dozen languages. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from prefold.compression.words import Floats

WESTERN = """not no never none nor neither nothing nobody nowhere without cannot unless except
    nicht kein keine keinen nie ohne ne pas jamais sans ni nunca sin não nem sem non mai senza
    не нет ни без"""
EASTERN = "不 没 沒 无 無 未 非 别 別 勿 ない なく なかっ ぬ ず ませ 안 못"
WORDS = frozenset([*WESTERN.split(), *EASTERN.split()])
# A word that begins so negates the one before it.
KOREAN = re.compile("(?:않|없|아니|아닌|못하|못한|못했)")
# Anywhere in a text, where words are not told apart:
INSIDE = re.compile(
    rf"\b(?:{'|'.join(WESTERN.split())}|kein\w+)\b|n['’]t\b"
    r"|[不没沒无無未非别別勿않없못]|ない|なく|なかっ|ません|ぬ|ず|아니|아닌|(?<!\w)안(?!\w)",
    re.IGNORECASE,
)
MARKS = re.compile(r"^\W+|\W+$")
REACH = 3  # words


def negates(core: str) -> bool:
    """Whether a word does; in small letters, without the marks around it."""
    return core in WORDS or core.endswith(("n't", "n’t")) or KOREAN.match(core) is not None


def count_negations(text: str) -> int:
    """Rather too many than too few: for comparing texts."""
    return len(INSIDE.findall(text))


def with_negations(words: Sequence[str], scores: Floats) -> Floats:
    """`scores` with negations first, each with what it negates: of the next words that with the
    highest score, in Korean the word before."""
    found = scores.copy()
    for row, word in enumerate(words):
        core = MARKS.sub("", word[:200]).lower()
        if not negates(core):
            continue
        found[row] = float("inf")
        if KOREAN.match(core):
            if row:
                found[row - 1] = float("inf")
        elif word[-1].isalnum() and row + 1 < len(words):
            after = row + 1 + int(scores[row + 1 : row + 1 + REACH].argmax())
            found[after] = float("inf")
    return found
