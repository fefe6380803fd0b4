"""Sentence vectors for tests, with no model: hashed counts of three characters, at unit length."""

import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from prefold.compression.words import Bools, Floats

WIDTH = 256


class NgramEmbedder:
    """It cannot read texts in which `unread` stands."""

    revision = "1"
    options: Mapping[str, object] = {}

    def __init__(self, unread: str = "\x00") -> None:
        self._unread = unread

    def embed(self, texts: Sequence[str]) -> tuple[Floats, Bools]:
        vectors = np.zeros((len(texts), WIDTH))
        for row, text in enumerate(texts):
            padded = f"  {text.lower()}  "
            for at in range(len(padded) - 2):
                three = padded[at : at + 3].encode("utf-8", "replace")
                vectors[row, zlib.crc32(three) % WIDTH] += 1
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        return vectors, np.array([self._unread not in text for text in texts], dtype=np.bool_)
