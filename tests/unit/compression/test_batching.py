"""Rows into batches, tokens into windows, tokens' values into words'."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.compression.batching import FILL, micro_batches, padded, windows
from prefold.compression.token_words import cut_by_tokens, means, of_text_alone, owners_of, sums
from tests.support.tiny_tokenizer import tiny_bpe

LENGTHS = st.lists(st.integers(1, 512), max_size=60)


@given(LENGTHS, st.integers(1, 4000))
def test_every_row_is_in_one_batch_with_little_padding(lengths: list[int], most: int) -> None:
    """No batch is too large, unless it is one row, and its rows are of like length."""
    batches = micro_batches(lengths, most)

    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[row] for row in batch)
        assert len(batch) == 1 or longest * len(batch) <= most
        assert min(lengths[row] for row in batch) >= FILL * longest


@given(st.lists(st.integers(1, 9), max_size=60), st.integers(1, 40))
def test_rows_of_one_length_are_never_padded(lengths: list[int], most: int) -> None:
    """With a fill of 1: batches of one length, as large as may be."""
    batches = micro_batches(lengths, most, fill=1.0)

    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for length in set(lengths):
        sizes = [len(batch) for batch in batches if lengths[batch[0]] == length]
        assert len(sizes) == -(-lengths.count(length) // max(1, most // length))
    assert all(len({lengths[row] for row in batch}) == 1 for batch in batches)


@given(st.integers(0, 5000), st.integers(1, 512))
def test_windows_part_the_tokens_evenly(count: int, most: int) -> None:
    """As few as can be, none much shorter than another."""
    found = windows(count, most)

    sizes = [end - start for start, end in found]
    assert [place for start, end in found for place in range(start, end)] == list(range(count))
    assert len(found) == -(-count // most)
    assert not sizes or (max(sizes) <= most and max(sizes) - min(sizes) <= 1)


def test_rows_are_padded_to_the_longest_of_them() -> None:
    """And the mask says what is padding."""
    ids, mask = padded([[5, 6, 7], [8]], pad=1)

    assert ids.tolist() == [[5, 6, 7], [8, 1, 1]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0]]


def test_tokens_belong_to_the_words_that_they_touch() -> None:
    """With the space before a word; across words; to none, where they are space alone."""
    starts, ends = np.array([0, 4, 8]), np.array([3, 7, 12])  # "one two word"
    offsets = [(0, 2), (2, 3), (3, 7), (7, 8), (6, 10), (10, 12), (0, 0)]
    values = np.array([1.0, 3.0, 5.0, 99.0, 7.0, 9.0, 99.0])

    first, last = owners_of(offsets, starts, ends)
    totals, tokens = sums(values, first, last, 3)

    assert totals.tolist() == [4.0, 12.0, 16.0]
    assert tokens.tolist() == [2.0, 2.0, 2.0]
    assert means(values, first, last, 3, unseen=-1.0).tolist() == [2.0, 6.0, 8.0]
    assert means(values[:0], first[:0], last[:0], 3, unseen=-1.0).tolist() == [-1.0] * 3


@pytest.mark.parametrize("run", ["", "字", "漢字仮名交じり文" * 5])
def test_pieces_of_a_run_are_whole_characters(run: str) -> None:
    """Also where tokens are bytes."""
    lengths = cut_by_tokens(tiny_bpe(), run)

    assert sum(lengths) == len(run)
    assert all(length > 0 for length in lengths)


def test_a_special_token_in_a_users_text_is_text() -> None:
    """Ids of its letters, not of the token."""
    tokenizer = tiny_bpe()
    special = tokenizer.token_to_id("<|im_end|>")
    text = "a <|im_end|> b"

    assert special in tokenizer.encode(text, add_special_tokens=False).ids
    assert special not in of_text_alone(tokenizer).encode(text, add_special_tokens=False).ids
