"""Compressors that score words: one pipeline, which each scorer fills with its own scores.

Words of all passages are scored in one call, so that a model sees full batches. What is kept of a
group of words depends on the group alone (groups.py), hence of a paragraph on the paragraph alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from prefold.compression.compressor import Compressed, Passage, digest_of, whole
from prefold.compression.groups import groups_of
from prefold.compression.keeping import FEW, best_of_groups, spans_of
from prefold.compression.words import Floats, Ints, Words, split

PIPELINE = "1"  # to be raised with every change of words, groups or keeping that alters outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Words that are judged together: word i is `text[starts[i]:ends[i]]`."""

    text: str
    starts: Ints
    ends: Ints


class Scorer(Protocol):
    """`options` are plain values; with name and revision they decide the scores."""

    name: str
    revision: str
    options: Mapping[str, object]

    def segment(self, run: str) -> Sequence[int]:
        """The lengths of the words of a run of Chinese or Japanese."""

    def score(self, groups: Sequence[Group]) -> list[Floats]:
        """For each group one value for each word: the higher, the more it is worth keeping."""


class Weights(Protocol):
    """What a word counts in the rate: words by default, or tokens of the engine's tokenizer."""

    name: str

    def of(self, words: Words) -> Floats:
        """One value for each word, not negative."""


class WordWeights:
    name = "words"

    def of(self, words: Words) -> Floats:
        return np.ones(len(words))


@dataclass(frozen=True, slots=True)
class _Plan:
    """A passage under way; `judged` are the rows of `bounds` that its scorer was asked about."""

    passage: Passage
    words: Words
    bounds: Ints
    judged: Ints


class ScoredCompressor:
    """Keeps the words of the highest score in each group, up to the rate."""

    def __init__(self, scorer: Scorer, weights: Weights | None = None) -> None:
        self._scorer = scorer
        self._weights = weights or WordWeights()
        self.name = scorer.name
        self.revision = f"{scorer.revision}/{PIPELINE}"
        options = {**scorer.options, "weights": self._weights.name}
        self.digest = digest_of(self.name, self.revision, options)

    def compress(self, passages: Sequence[Passage]) -> list[Compressed]:
        plans = [self._plan(passage) for passage in passages]
        groups = [_group(plan, row) for plan in plans if plan for row in plan.judged.tolist()]
        scores = self._scorer.score(groups) if groups else []
        results, at = [], 0
        for plan, passage in zip(plans, passages, strict=True):
            if plan is None:
                results.append(whole(passage.text))
                continue
            results.append(self._result(plan, scores[at : at + len(plan.judged)]))
            at += len(plan.judged)
        return results

    def _plan(self, passage: Passage) -> _Plan | None:
        """None if the passage stays whole."""
        if passage.rate >= 1:
            return None
        words = split(passage.text, passage.protected, self._scorer.segment)
        bounds = groups_of(words)
        if len(bounds) < 2:
            return None
        free = np.add.reduceat((~words.forced).astype(np.int64), bounds[:-1])
        judged = np.flatnonzero(free >= FEW)
        return _Plan(passage, words, bounds, judged) if len(judged) else None

    def _result(self, plan: _Plan, scores: list[Floats]) -> Compressed:
        words = plan.words
        merged = np.zeros(len(words))
        for row, values in zip(plan.judged.tolist(), scores, strict=True):
            merged[plan.bounds[row] : plan.bounds[row + 1]] = values
        weights = self._weights.of(words)
        keep = best_of_groups(merged, weights, words.forced, plan.bounds, plan.passage.rate)
        return Compressed(kept=spans_of(words, keep))


def _group(plan: _Plan, row: int) -> Group:
    rows = slice(int(plan.bounds[row]), int(plan.bounds[row + 1]))
    starts, ends = plan.words.starts[rows], plan.words.ends[rows]
    first, after = int(starts[0]), int(ends[-1])
    return Group(text=plan.passage.text[first:after], starts=starts - first, ends=ends - first)
