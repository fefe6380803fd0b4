"""Words weighed in tokens, so that a rate of a half is half of an engine's tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from prefold.compression.words import Floats, Words


class Encoding(Protocol):
    @property
    def offsets(self) -> Sequence[tuple[int, int]]: ...


class Encoder(Protocol):
    """As `tokenizers.Tokenizer`."""

    def encode(self, sequence: str, *, add_special_tokens: bool) -> Encoding: ...

    def to_str(self) -> str: ...


class TokenWeights:
    """Tokens of the whole text, each given to the word in which, or in whose space, it begins."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.name = "tokens:" + hashlib.sha256(encoder.to_str().encode()).hexdigest()[:16]

    def of(self, words: Words) -> Floats:
        offsets = self._encoder.encode(words.text, add_special_tokens=False).offsets
        begins = np.array([start for start, _ in offsets], dtype=np.int64)
        owners = np.searchsorted(words.spaces, begins, side="right") - 1
        owners = owners[owners >= 0]
        return np.bincount(owners, minlength=len(words)).astype(np.float64)
