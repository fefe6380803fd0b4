"""A scorer for tests: a word's score is a checksum of it, so everything else shows undisturbed."""

import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from prefold.compression.scored import Group
from prefold.compression.words import Floats, one_word


class HashScorer:
    name = "hash"
    revision = "1"
    options: Mapping[str, object] = {}

    def segment(self, run: str) -> Sequence[int]:
        return one_word(run)

    def score(self, groups: Sequence[Group]) -> list[Floats]:
        return [
            np.array([float(zlib.crc32(word.encode("utf-8", "replace"))) for word in words(group)])
            for group in groups
        ]


def words(group: Group) -> list[str]:
    spans = zip(group.starts.tolist(), group.ends.tolist(), strict=True)
    return [group.text[start:end] for start, end in spans]
