"""From scores to words, and from words to spans."""

import numpy as np
import pytest

from prefold.compression.compressor import Spans
from prefold.compression.groups import LEAST, MOST, groups_of
from prefold.compression.keeping import best, spans_of
from prefold.compression.token_weights import TokenWeights
from prefold.compression.words import split
from tests.support.tiny_tokenizer import tiny_bpe


def kept(text: str, *gone: str, protected: Spans = ()) -> str:
    """`text` without the words that are named by their beginning."""
    words = split(text, protected)
    cut = np.array(
        [
            text[start:end].startswith(gone) if gone else False
            for start, end in zip(words.starts, words.ends, strict=True)
        ]
    )
    return "".join(text[start:end] for start, end in spans_of(words, ~cut))


@pytest.mark.parametrize(
    ("text", "gone", "left"),
    [
        ("one two three", ["two"], "one three"),
        ("one two three", ["one"], "two three"),
        ("one two three", ["three"], "one two"),
        ("  one two ", ["two"], "  one "),
        ("one\ntwo three", ["two"], "one\nthree"),
        ("one two\n\nthree four", ["two", "three"], "one\n\nfour"),
        ("one two. Three", ["two"], "one. Three"),
        ("one. Two three.", ["Two", "three"], "one."),
        ("one two\nthree. Four", ["two", "three"], "one. Four"),
        ("one (two) three", ["(two"], "one three"),
        ('he said "no way" then', ['"no'], 'he said way" then'),
        ("漢字を書く。次は", ["を"], "漢字書く。次は"),
        ("one two", ["one", "two"], ""),
    ],
)
def test_white_space_and_sentence_ends_survive(text: str, gone: list[str], left: str) -> None:
    """Lines stay lines, sentences of which something stays keep their end, words stay apart."""
    assert kept(text, *gone) == left


def test_the_best_words_stay() -> None:
    """As many as come nearest to the rate, one at least; of equals the earlier."""
    scores = np.array([5.0, 1.0, 5.0, 2.0, 5.0, 4.0, 3.0, 0.0])
    ones, free = np.ones(8), np.zeros(8, dtype=np.bool_)

    assert best(scores, ones, free, 0.25).nonzero()[0].tolist() == [0, 2]
    assert best(scores, ones, free, 0.5).nonzero()[0].tolist() == [0, 2, 4, 5]
    assert best(scores, ones, free, 0.001).nonzero()[0].tolist() == [0]


def test_weights_are_what_the_rate_counts() -> None:
    """A word of many tokens takes as much of the budget."""
    scores = np.arange(8.0)
    weights = np.array([1.0] * 7 + [7.0])

    assert best(scores, weights, np.zeros(8, dtype=np.bool_), 0.5).nonzero()[0].tolist() == [7]


def test_protected_words_count_but_leave_half_the_rate_to_the_others() -> None:
    """8 of 16 are protected: at a half, none of the others would stay; a quarter do."""
    scores = np.arange(16.0)
    forced = np.arange(16) < 8

    keep = best(scores, np.ones(16), forced, 0.5)

    assert keep[:8].all()
    assert keep[8:].nonzero()[0].tolist() == [6, 7]


def test_a_few_words_stay_whole() -> None:
    """A heading is not worth judging."""
    assert best(np.arange(5.0), np.ones(5), np.zeros(5, dtype=np.bool_), 0.2).all()


def test_groups_end_with_paragraphs_and_are_bounded() -> None:
    """And never cut what comes before a sentence's end short of LEAST words."""
    sentences = " ".join(f"This is a plain sentence called {'x' * (i % 9)}." for i in range(400))
    words = split(f"{sentences}\n\n{'word ' * 1000}", ())

    bounds = groups_of(words)

    sizes = np.diff(bounds)
    breaks = words.breaks.nonzero()[0].tolist()
    assert set(breaks) <= set(bounds.tolist())
    assert sizes.max() == MOST
    ends = [
        row
        for row, size in zip(bounds[1:-1].tolist(), sizes.tolist(), strict=False)
        if size < MOST and row not in breaks
    ]
    assert ends
    assert all(words.tails[row - 1] < words.ends[row - 1] for row in ends)
    assert all(
        size >= LEAST
        for after, size in zip(bounds[1:].tolist(), sizes.tolist(), strict=True)
        if after not in [*breaks, len(words)]
    )


def test_words_are_weighed_in_tokens() -> None:
    """Every token counts for one word; all of them are counted."""
    tokenizer = tiny_bpe()
    text = "hello there,  what 漢字 is this?"
    words = split(text, ())

    weights = TokenWeights(tokenizer).of(words)

    assert weights.sum() == len(tokenizer.encode(text, add_special_tokens=False).ids)
    assert (weights > 0).all()
