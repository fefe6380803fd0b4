"""`llmlingua2`, mode `stable`: words scored by a token classifier, in groups cut by content. Where
the classifier runs, here or on a vLLM server, this does not know.

A word's score is the mean of its tokens' probabilities. What the model cannot read (unknown
tokens, or none) is kept first: it was never asked about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from prefold.compression.batching import windows
from prefold.compression.compressor import CompressorFault
from prefold.compression.scored import Group
from prefold.compression.token_words import cut_by_tokens, means, of_text_alone, owners_of
from prefold.compression.words import Floats

CODE = "1"  # to be raised with every change of scores


class Classifier(Protocol):
    """For each token, how probably it is worth keeping. `options` and `revision` are what that
    depends on; `longest`: tokens of a row, special ones included."""

    tokenizer: Any
    revision: str
    options: Mapping[str, object]
    longest: int
    begin_id: int
    end_id: int
    unknown_id: int

    def probabilities(self, rows: Sequence[Sequence[int]]) -> list[npt.NDArray[np.float32]]:
        """One for each id of each row."""


class LLMLingua2Scorer:
    name = "llmlingua2"

    def __init__(self, classifier: Classifier) -> None:
        self._classifier = classifier
        self._tokenizer = of_text_alone(classifier.tokenizer)
        self.revision = f"{CODE}/{classifier.revision}"
        self.options: Mapping[str, object] = {"mode": "stable", **classifier.options}

    def segment(self, run: str) -> Sequence[int]:
        return cut_by_tokens(self._tokenizer, run)

    def score(self, groups: Sequence[Group]) -> list[Floats]:
        model = self._classifier
        texts = [group.text for group in groups]
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        rows, owners = [], []
        for number, encoding in enumerate(encodings):
            for start, end in windows(len(encoding.ids), model.longest - 2):
                rows.append([model.begin_id, *encoding.ids[start:end], model.end_id])
                owners.append(number)
        parts: list[list[Floats]] = [[] for _ in groups]
        for number, probabilities in zip(owners, model.probabilities(rows), strict=True):
            parts[number].append(probabilities[1:-1].astype(np.float64))
        return [
            self._of_words(group, encoding, np.concatenate([*pieces, np.zeros(0)]))
            for group, encoding, pieces in zip(groups, encodings, parts, strict=True)
        ]

    def _of_words(self, group: Group, encoding: Any, values: Floats) -> Floats:
        """Raises CompressorFault: in half precision a model may overflow."""
        if not np.isfinite(values).all():
            raise CompressorFault("the model's scores are no numbers")
        values[np.array(encoding.ids, dtype=np.int64) == self._classifier.unknown_id] = np.inf
        first, last = owners_of(encoding.offsets, group.starts, group.ends)
        return means(values, first, last, len(group.starts), unseen=np.inf)
