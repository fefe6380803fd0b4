"""`surprisal`: words scored by how little a causal language model expected them.

A word's score is the sum over its tokens: of what can be guessed, the least is lost by a cut. But a
negation is easily guessed, and its loss is the worst of all: it stays with what it negates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from prefold.compression.batching import windows
from prefold.compression.causal_lm import CausalLM
from prefold.compression.negations import with_negations
from prefold.compression.scored import Group
from prefold.compression.token_words import cut_by_tokens, owners_of, sums
from prefold.compression.words import Floats

CODE = "2"  # to be raised with every change of scores


class SurprisalScorer:
    name = "surprisal"

    def __init__(self, model: CausalLM) -> None:
        self._model = model
        self.revision = f"{CODE}/{model.revision}"
        self.options: Mapping[str, object] = model.options

    def segment(self, run: str) -> Sequence[int]:
        return cut_by_tokens(self._model.tokenizer, run)

    def score(self, groups: Sequence[Group]) -> list[Floats]:
        model = self._model
        texts = [group.text for group in groups]
        encodings = model.tokenizer.encode_batch(texts, add_special_tokens=False)
        rows, owners = [], []
        for number, encoding in enumerate(encodings):
            for start, end in windows(len(encoding.ids), model.longest - 1):
                rows.append([model.begin_id, *encoding.ids[start:end]])
                owners.append(number)
        parts: list[list[Floats]] = [[] for _ in groups]
        for number, values in zip(owners, model.surprisals(rows), strict=True):
            parts[number].append(values)
        return [
            _of_words(group, encoding, np.concatenate([*pieces, np.zeros(0)]))
            for group, encoding, pieces in zip(groups, encodings, parts, strict=True)
        ]


def _of_words(group: Group, encoding: Any, values: Floats) -> Floats:
    """A word without tokens scores highest: the model was not asked about it."""
    first, last = owners_of(encoding.offsets, group.starts, group.ends)
    totals, tokens = sums(values, first, last, len(group.starts))
    scores = np.where(tokens > 0, totals, np.inf)
    spans = zip(group.starts.tolist(), group.ends.tolist(), strict=True)
    return with_negations([group.text[start:end] for start, end in spans], scores)
