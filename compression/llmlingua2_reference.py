"""`llmlingua2`, mode `reference`: the decisions of the package `llmlingua` 0.2.2, word by word.

Its chunks (510 tokens, back to the last full stop), its texts tokenized twice, its words, its
threshold for each chunk (a whole percentile of the words' probabilities, each as often as cl100k
has tokens for it). Not its padding, its loops, or its output: what is kept are spans of the source.
Outputs depend on a text's position in its document; `stable` is for prompts that share prefixes.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prefold.compression.compressor import Compressed, Passage, digest_of, whole
from prefold.compression.keeping import spans_of
from prefold.compression.reference_chunks import Chunk, chunks_of
from prefold.compression.token_classifier import Probabilities, TokenClassifier
from prefold.compression.words import Bools, Ints, Words

CODE = "1"  # to be raised with every change of outputs
DIGIT = re.compile(r"\d")
NOT_SPACE = re.compile(r"\S+")
CountTokens = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceOptions:
    """`special_tokens`: "released" gives every model BERT's [CLS] and [SEP], unknown to XLM-R,
    as version 0.2.2 does by mistake; "corrected" gives each its own. `first_token`: a word's
    probability is its first token's, not the mean. `reserve_digits`: tokens with digits count as 1.
    """

    special_tokens: str = "released"
    first_token: bool = False
    reserve_digits: bool = False

    def __post_init__(self) -> None:
        if self.special_tokens not in ("released", "corrected"):
            raise ValueError("special_tokens must be released or corrected")


@dataclass(frozen=True, slots=True)
class Judged:
    """The words of a chunk as the package spells them, where they are, and which stay."""

    words: list[str]
    starts: Ints
    ends: Ints
    keep: Bools


class ReferenceCompressor:
    """`count_tokens` weighs words: cl100k's count, for the package's decisions."""

    name = "llmlingua2"

    def __init__(
        self,
        classifier: TokenClassifier,
        options: ReferenceOptions,
        count_tokens: CountTokens,
        count_name: str,
    ) -> None:
        self._classifier = classifier
        self._options = options
        self._count = count_tokens
        self._counts: dict[str, int] = {}
        self._is_bert = not _has_word_starts(classifier.tokenizer)
        self._bounds = self._special_ids()
        self.revision = f"{CODE}/{classifier.revision}"
        named: Mapping[str, object] = {
            "mode": "reference",
            "options": repr(options),
            "weights": count_name,
            **classifier.options,
        }
        self.digest = digest_of(self.name, self.revision, named)

    def compress(self, passages: Sequence[Passage]) -> list[Compressed]:
        judged = self.judge([passage.text for passage in passages], [p.rate for p in passages])
        return [
            _compressed(passage, chunks) if passage.rate < 1 else whole(passage.text)
            for passage, chunks in zip(passages, judged, strict=True)
        ]

    def judge(self, texts: Sequence[str], rates: Sequence[float]) -> list[list[Judged]]:
        """For each text its chunks, in order."""
        chunked = [chunks_of(text, self._classifier.tokenizer) for text in texts]
        begin, end = self._bounds
        longest = self._classifier.longest
        rows = [[begin, *chunk.ids, end][:longest] for chunks in chunked for chunk in chunks]
        # For BERT, "[PAD]" in a text is padding to the package; for XLM-R it is a word.
        found = self._classifier.probabilities(rows, hide_padding_ids=self._is_bert)
        probabilities = iter(found)
        return [
            [self._judge(chunk, next(probabilities)[1:], rate) for chunk in chunks]
            for chunks, rate in zip(chunked, rates, strict=True)
        ]

    def _judge(self, chunk: Chunk, values: Probabilities, rate: float) -> Judged:
        """`values` of the chunk's tokens; a token that the row had no room for has none."""
        known = [
            row
            for row, token in enumerate(chunk.tokens[: len(values)])
            if token not in self._classifier.special
            and chunk.ids[row] != self._classifier.unknown_id
        ]
        words, owners = self._words([chunk.tokens[row] for row in known])
        spans = np.array([chunk.offsets[row] for row in known], dtype=np.int64).reshape(-1, 2)
        starts, ends = _extents(spans, owners, len(words))
        if not words:
            return Judged(words, starts, ends, np.ones(0, dtype=np.bool_))
        scores = self._scores(values[known], [chunk.tokens[row] for row in known], owners)
        counts = [self._tokens_in(word) for word in words]
        # The package's own expression, roundings included.
        percentile = min(int(100 * max(0, 1 - rate) + 1), 100)
        threshold = np.percentile(np.repeat(scores, counts), percentile)
        keep = (scores > threshold) | ((threshold == 1.0) & (scores == threshold))
        return Judged([word.lstrip("▁") for word in words], starts, ends, keep)

    def _words(self, tokens: list[str]) -> tuple[list[str], Ints]:
        """The words, and for each token the word it belongs to."""
        begins = np.array([self._begins(token) for token in tokens], dtype=np.bool_)
        begins[:1] = True
        owners = np.cumsum(begins) - 1
        words = [""] * (int(owners[-1]) + 1 if len(owners) else 0)
        for token, owner, new in zip(tokens, owners.tolist(), begins.tolist(), strict=True):
            words[owner] += token if new else token.lstrip("##" if self._is_bert else "▁")
        return words, owners.astype(np.int64)

    def _begins(self, token: str) -> bool:
        if self._is_bert:
            return not token.startswith("##")
        return token.startswith("▁") or token in string.punctuation

    def _scores(self, values: Probabilities, tokens: list[str], owners: Ints) -> Any:
        """In float32 and in the package's order of adding, so that equals stay equal."""
        if self._options.reserve_digits:
            values = values.copy()
            values[[bool(DIGIT.search(token)) for token in tokens]] = 1.0
        count = int(owners[-1]) + 1
        if self._options.first_token:
            return values[np.searchsorted(owners, np.arange(count))]
        totals = np.zeros(count, dtype=np.float32)
        np.add.at(totals, owners, values)
        return totals / np.bincount(owners).astype(np.float32)

    def _tokens_in(self, word: str) -> int:
        count = self._counts.get(word)
        if count is None:
            if len(self._counts) > 100_000:
                self._counts.clear()
            count = self._counts[word] = self._count(word)
        return count

    def _special_ids(self) -> tuple[int, int]:
        model = self._classifier
        if self._options.special_tokens == "corrected" or self._is_bert:
            return model.begin_id, model.end_id
        return model.unknown_id, model.unknown_id


def _extents(spans: Ints, owners: Ints, count: int) -> tuple[Ints, Ints]:
    """Where each word begins and ends, from its tokens' places; (0, 0) where it has none."""
    starts = np.full(count, np.iinfo(np.int64).max)
    ends = np.zeros(count, dtype=np.int64)
    real = spans[:, 0] < spans[:, 1]
    np.minimum.at(starts, owners[real], spans[real, 0])
    np.maximum.at(ends, owners[real], spans[real, 1])
    starts[ends == 0] = 0
    return starts, ends


def _compressed(passage: Passage, chunks: list[Judged]) -> Compressed:
    """The kept words and what is protected. What the package never judged stays."""
    text = passage.text
    rows = [(start, end, True) for start, end in passage.protected]
    for chunk in chunks:
        spans = zip(chunk.starts.tolist(), chunk.ends.tolist(), chunk.keep.tolist(), strict=True)
        rows += [(_after_space(text, start, end), end, keep) for start, end, keep in spans]
    rows = _filled(text, _merged(rows))
    return Compressed(kept=spans_of(*Words.of_rows(text, rows)))


Row = tuple[int, int, bool]


def _after_space(text: str, start: int, end: int) -> int:
    """Where the word of a token begins that may begin with the space before it."""
    inside = text[start:end]
    return start + len(inside) - len(inside.lstrip())


def _merged(rows: list[Row]) -> list[Row]:
    """In order and disjoint: of those that overlap, all stay if one does."""
    done: list[Row] = []
    for start, end, keep in sorted(rows):
        if done and start < done[-1][1]:
            first, last, kept = done[-1]
            done[-1] = (first, max(last, end), kept or keep)
        elif start < end:
            done.append((start, end, keep))
    return done


def _filled(text: str, rows: list[Row]) -> list[Row]:
    """With what lies between the rows and is not white space, to be kept."""
    done: list[Row] = []
    at = 0
    for start, end, keep in [*rows, (len(text), len(text), True)]:
        done += [(*found.span(), True) for found in NOT_SPACE.finditer(text, at, start)]
        if start < end:
            done.append((start, end, keep))
        at = end
    return done


def _has_word_starts(tokenizer: Any) -> bool:
    return "▁" in tokenizer.encode("a b", add_special_tokens=False).tokens[0]
