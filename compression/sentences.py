"""`sentences`: whole sentences go, those that repeat earlier ones and those that stand for little.

By sentence embeddings and without a question, so a passage comes out alike in every prompt. Coarser
than leaving out words, and what stays can be read as it was written. What is protected keeps its
whole sentence.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

import numpy as np

from prefold.compression.compressor import Compressed, Passage, digest_of, whole
from prefold.compression.keeping import spans_of
from prefold.compression.negations import count_negations
from prefold.compression.scored import Weights, WordWeights
from prefold.compression.sentences_choice import repeated, representative, similarities
from prefold.compression.sentences_split import groups_of_sentences, sentences_of
from prefold.compression.words import CJK, Bools, Floats, Ints, Words, split

CODE = "1"  # to be raised with every change of outputs
ALIKE = 0.95  # the cosine from which on a sentence repeats another, if facts are the same
NAMES = re.compile(rf"(?<=\s)[\"'“(]?[^\W\d_a-z]\w*|[{CJK}]")  # see _facts


class Embedder(Protocol):
    """`options` are plain values; with revision they decide the vectors."""

    revision: str
    options: Mapping[str, object]

    def embed(self, texts: Sequence[str]) -> tuple[Floats, Bools]:
        """One unit row for each text, and whether the model can read the text."""


@dataclass(frozen=True, slots=True)
class _Plan:
    words: Words
    sentences: Ints  # as bounds of words
    texts: list[str]


class SentenceCompressor:
    def __init__(
        self, embedder: Embedder, weights: Weights | None = None, *, alike: float = ALIKE
    ) -> None:
        self._embedder = embedder
        self._weights = weights or WordWeights()
        self._alike = alike
        self.name = "sentences"
        self.revision = f"{CODE}/{embedder.revision}"
        options = {**embedder.options, "alike": alike, "weights": self._weights.name}
        self.digest = digest_of(self.name, self.revision, options)

    def compress(self, passages: Sequence[Passage]) -> list[Compressed]:
        plans = [_planned(passage) for passage in passages]
        texts = [text for plan in plans if plan for text in plan.texts]
        vectors, read = self._embedder.embed(texts) if texts else (np.zeros((0, 0)), None)
        results, at = [], 0
        for plan, passage in zip(plans, passages, strict=True):
            if plan is None or read is None:
                results.append(whole(passage.text))
                continue
            rows = slice(at, at + len(plan.texts))
            at = rows.stop
            results.append(self._result(plan, vectors[rows], read[rows], passage.rate))
        return results

    def _result(self, plan: _Plan, vectors: Floats, read: Bools, rate: float) -> Compressed:
        words, firsts = plan.words, plan.sentences[:-1]
        weights = np.add.reduceat(self._weights.of(words), firsts)
        forced = np.logical_or.reduceat(words.forced, firsts) | ~read
        again = repeated(vectors, [_facts(text) for text in plan.texts], forced, self._alike)
        keep = np.zeros(len(firsts), dtype=np.bool_)
        for first, after in pairwise(groups_of_sentences(words, plan.sentences).tolist()):
            rows = slice(first, after)
            keep[rows] = representative(
                similarities(vectors[rows], vectors[rows]),
                weights[rows],
                forced[rows],
                again[rows],
                rate,
            )
        lengths = np.diff(plan.sentences)
        # A mark that ends a sentence is no more than a part of it here.
        return Compressed(kept=spans_of(replace(words, tails=words.ends), np.repeat(keep, lengths)))


def _planned(passage: Passage) -> _Plan | None:
    """None if the passage stays whole."""
    if passage.rate >= 1:
        return None
    words = split(passage.text, passage.protected)
    sentences = sentences_of(words)
    if len(sentences) < 3:  # one sentence, or none
        return None
    starts, ends = words.starts.tolist(), words.ends.tolist()
    texts = [
        passage.text[starts[first] : ends[after - 1]]
        for first, after in pairwise(sentences.tolist())
    ]
    return _Plan(words, sentences, texts)


def _facts(sentence: str) -> Hashable:
    """In what a repetition may not differ, however alike the vectors are: names, and how often it
    says no. Numbers are protected. Of scripts without capitals every word is in here but the first,
    and every Chinese and Japanese character."""
    return frozenset(NAMES.findall(sentence)), count_negations(sentence)
