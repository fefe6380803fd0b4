"""Between a model's tokens and the words that are judged: by character offsets, in arrays. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from prefold.compression.words import Floats, Ints


def owners_of(offsets: Sequence[tuple[int, int]], starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """The first and the last word that each token touches; last < first if it touches none.

    A token that begins with the space before its word touches that word only.
    """
    table = np.array(offsets, dtype=np.int64).reshape(-1, 2)
    first = np.searchsorted(ends, table[:, 0], side="right")
    last = np.searchsorted(starts, table[:, 1], side="left") - 1
    last[table[:, 0] == table[:, 1]] = -1  # written by the tokenizer, not by the text
    return first, last


def sums(values: Floats, first: Ints, last: Ints, count: int) -> tuple[Floats, Floats]:
    """For each of `count` words the sum of its tokens' values, and how many tokens it has.

    A token of several words counts for each.
    """
    totals, tokens = np.zeros(count), np.zeros(count)
    single = first == last
    np.add.at(totals, first[single], values[single])
    np.add.at(tokens, first[single], 1)
    for row in np.flatnonzero(last > first):  # rare: a token across words
        totals[first[row] : last[row] + 1] += values[row]
        tokens[first[row] : last[row] + 1] += 1
    return totals, tokens


def means(values: Floats, first: Ints, last: Ints, count: int, *, unseen: float) -> Floats:
    """For each word the mean of its tokens' values, `unseen` for a word without tokens."""
    totals, tokens = sums(values, first, last, count)
    return np.where(tokens > 0, totals / np.maximum(tokens, 1), unseen)


def of_text_alone(tokenizer: Any) -> Any:
    """A copy of a `tokenizers.Tokenizer` to which "[SEP]" in a user's text is text."""
    copy = type(tokenizer).from_str(tokenizer.to_str())
    copy.encode_special_tokens = True
    return copy


def cut_by_tokens(tokenizer: Any, run: str) -> Sequence[int]:
    """A run of Chinese or Japanese in the pieces that a model knows: their lengths.

    Pieces of bytes are joined to whole characters.
    """
    edges = {0, len(run)}
    edges.update(start for start, _ in tokenizer.encode(run, add_special_tokens=False).offsets)
    cuts = sorted(edges)
    return [after - before for before, after in pairwise(cuts)]
