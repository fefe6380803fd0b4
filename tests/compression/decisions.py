"""How alike two results of compression are: by words between spaces, by their first characters."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from prefold.compression.compressor import Compressed

WORD = re.compile(r"\S+")


def share_alike(texts: Sequence[str], left: list[Compressed], right: list[Compressed]) -> float:
    """The share of all words that both keep or both cut."""
    same = [
        kept_left == kept_right
        for text, one, other in zip(texts, left, right, strict=True)
        for kept_left, kept_right in zip(_kept(text, one), _kept(text, other), strict=True)
    ]
    return sum(same) / len(same)


def _kept(text: str, result: Compressed) -> list[bool]:
    marks = np.zeros(len(text), dtype=np.bool_)
    for start, end in result.kept:
        marks[start:end] = True
    return [bool(marks[word.start()]) for word in WORD.finditer(text)]
