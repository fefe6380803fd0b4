"""Which rows go through a model together: those of like length, so that little is padding. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

FILL = 0.8  # of the longest row's length: shorter ones wait for their like
Ids = npt.NDArray[np.int64]


def micro_batches(lengths: Sequence[int], most: int, fill: float = FILL) -> list[list[int]]:
    """The rows of each batch: at most `most` tokens with padding (one row may be more alone).

    With a `fill` of 1 only rows of one length are together, and nothing is padded.
    """
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    batches: list[list[int]] = []
    longest = 0
    for row in order:
        length = lengths[row]
        if batches and length >= fill * longest and longest * (len(batches[-1]) + 1) <= most:
            batches[-1].append(row)
        else:
            batches.append([row])
            longest = length
    return batches


def padded(rows: Sequence[Sequence[int]], pad: int) -> tuple[Ids, Ids]:
    """Ids and attention mask, each of shape (rows, longest row)."""
    longest = max(map(len, rows))
    ids = np.full((len(rows), longest), pad, dtype=np.int64)
    mask = np.zeros((len(rows), longest), dtype=np.int64)
    for at, row in enumerate(rows):
        ids[at, : len(row)] = row
        mask[at, : len(row)] = 1
    return ids, mask


def windows(count: int, most: int) -> list[tuple[int, int]]:
    """`count` tokens in as few windows of at most `most` as can be, all of about one length."""
    pieces = max(1, -(-count // most))
    edges = [round(count * piece / pieces) for piece in range(pieces + 1)]
    return list(pairwise(edges)) if count else []
