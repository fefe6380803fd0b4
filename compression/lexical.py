"""Words scored by how rare they are in their language: no model, some 10^5 words a second.

Word frequencies, and the words of Chinese, Japanese and Korean, come from the package `wordfreq`.
A word that everybody writes everywhere says little where it is missing; a rare one says much.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from importlib import metadata

import numpy as np

from prefold.compression.compressor import CompressorUnavailable
from prefold.compression.negations import KOREAN, negates
from prefold.compression.scored import Group
from prefold.compression.segmenters import Segmenters
from prefold.compression.words import Floats

CODE = "1"  # to be raised with every change of scores
MEMO = 200_000  # words whose rarity is remembered
RAREST = 1e-9  # the share of a word that no list knows
NAME = 6.0  # bits: a capital where no sentence begins is a name, worth more than its rarity
MARKS = re.compile(r"^\W+|\W+$")
ENDS = re.compile(r"[.!?…。！？][^\w\s]*$")
# A negation is the first to stay, with the next word that says something (in Korean, the word
# before).
REACH, SAYS_SOMETHING = 3, 9.0  # words after a negation; bits
# The language of a script, where one is far more common than its others.
SCRIPTS = (
    ("ko", re.compile("[\u1100-\u11ff\uac00-\ud7af]")),
    ("ja", re.compile("[\u3041-\u30ff]")),
    ("zh", re.compile("[\u3400-\u9fff\U00020000-\U0003ffff]")),
    ("ru", re.compile("[\u0400-\u04ff]")),
    ("ar", re.compile("[\u0600-\u06ff]")),
    ("el", re.compile("[\u0370-\u03ff]")),
    ("he", re.compile("[\u0590-\u05ff]")),
    ("hi", re.compile("[\u0900-\u097f]")),
)


class LexicalScorer:
    """`language` is that of words in Latin letters; other scripts tell their own.

    Raises CompressorUnavailable where wordfreq is not installed or does not know the language.
    """

    name = "lexical"

    def __init__(self, language: str = "en") -> None:
        try:
            import wordfreq
        except ImportError:
            raise CompressorUnavailable(
                "lexical needs wordfreq: pip install 'prefold[compression-lexical]'"
            ) from None
        if language not in wordfreq.available_languages():
            raise CompressorUnavailable(f"wordfreq has no list for the language {language!r}")
        self._language = language
        self._segmenters = Segmenters()
        self._lists: dict[str, dict[str, float]] = {}
        self._bits: dict[str, float] = {}  # a memo of `_rarity`, emptied when it is large
        self.revision = f"{CODE}/wordfreq-{metadata.version('wordfreq')}"
        self.options: Mapping[str, object] = {
            "language": language,
            "segmenters": self._segmenters.revision,
        }

    def segment(self, run: str) -> Sequence[int]:
        return self._segmenters.lengths(run)

    def score(self, groups: Sequence[Group]) -> list[Floats]:
        return [self._score(group) for group in groups]

    def _score(self, group: Group) -> Floats:
        if len(self._bits) > MEMO:
            self._bits.clear()
        known, scores = self._bits, list[float]()
        begins = True  # a sentence
        negated = 0  # words from here on that a negation reaches
        for start, end in zip(group.starts.tolist(), group.ends.tolist(), strict=True):
            word = group.text[start:end]
            bits = known.get(word)
            if bits is None:
                bits = known[word] = self._rarity(word)
            if bits == math.inf:
                negated = REACH
                if scores and KOREAN.match(word):
                    scores[-1] = math.inf
            elif negated:
                negated = 0 if bits >= SAYS_SOMETHING else negated - 1
                bits = bits if negated else math.inf  # that word, or the last in reach
            scores.append(bits + NAME if word[0].isupper() and not begins else bits)
            begins = not word[-1].isalnum() and ENDS.search(word[-8:]) is not None
            negated = 0 if begins else negated
        return np.array(scores)

    def _rarity(self, word: str) -> float:
        """Bits of surprisal, infinite for what must stay."""
        core = MARKS.sub("", word[:200]).lower()
        if not core:
            return 0.0
        if negates(core):
            return math.inf
        return -math.log2(max(self._share(core), RAREST))

    def _share(self, core: str) -> float:
        """Of the words of its language; 0 if unknown."""
        language = self._language_of(core)
        found = self._list(language).get(self._segmenters.entry(core, language), 0.0)
        if found or language in ("zh", "ja") or language in self._segmenters.missing:
            return found
        import wordfreq

        return float(wordfreq.word_frequency(core, language))  # as rare as its parts together

    def _language_of(self, core: str) -> str:
        if core.isascii():
            return self._language
        for language, letters in SCRIPTS:
            if letters.search(core):
                return language
        return self._language

    def _list(self, language: str) -> dict[str, float]:
        words = self._lists.get(language)
        if words is None:
            import wordfreq

            words = self._lists[language] = wordfreq.get_frequency_dict(language)
        return words
