"""Negations: which words are one, and what stays with them."""

import numpy as np
import pytest

from prefold.compression.negations import count_negations, negates, with_negations


@pytest.mark.parametrize(
    "word",
    [
        "not",
        "don't",
        "won’t",
        "nicht",
        "keine",
        "ne",
        "нет",
        "不",
        "ない",
        "안",
        "않는다고",
        "없다",
    ],
)
def test_negations_are_known_in_many_languages(word: str) -> None:
    """As words, and inside a text."""
    assert negates(word)
    assert count_negations(f"x {word} x") >= 1


@pytest.mark.parametrize("word", ["knot", "note", "nothingness", "Nein", "천안", "bridge", ""])
def test_other_words_are_none(word: str) -> None:
    """Though they look like one."""
    assert not negates(word.lower())
    assert count_negations(word) == 0


@pytest.mark.parametrize(
    ("words", "scores", "stays"),
    [
        (["it", "is", "not", "in", "safe", "hands"], [9, 9, 0, 1, 5, 3], ["not", "safe"]),
        (["They", "(don't)", "care.", "Nobody", "does"], [9, 0, 1, 0, 2], ["Nobody", "does"]),
        (["they", "did", "not."], [9, 9, 0], ["not."]),
        (["시민은", "반대하지", "않았다."], [9, 1, 0], ["반대하지", "않았다."]),
        (["않았다"], [1], ["않았다"]),
        (["no", "harm", "was", "done"], [0, 4, 1, 2], ["no", "harm"]),
        (["all", "is", "well"], [1, 2, 3], []),
    ],
)
def test_a_negation_stays_with_what_it_negates(
    words: list[str], scores: list[float], stays: list[str]
) -> None:
    """The best of the next three words, unless a mark follows it; in Korean the word before."""
    given = np.array(scores, dtype=np.float64)

    found = with_negations(words, given)

    infinite = [word for word, score in zip(words, found, strict=True) if score == np.inf]
    assert [word for word in infinite if word != "(don't)"] == stays
    assert np.array_equal(found[np.isfinite(found)], given[np.isfinite(found)])
