"""The protocol: what a passage may be, what a result must be, and what names a result."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.compression.compressor import (
    Compressed,
    CompressorFault,
    NullCompressor,
    Passage,
    Spans,
    cache_key,
    compress_checked,
    digest_of,
)


class Returning(NullCompressor):
    """A compressor that returns what it is told to."""

    def __init__(self, *kept: Spans) -> None:
        self._kept = kept

    def compress(self, passages: Sequence[Passage]) -> list[Compressed]:
        return [Compressed(kept=kept) for kept in self._kept]


@given(st.lists(st.text(), max_size=4))
def test_the_null_compressor_keeps_every_text_whole(texts: list[str]) -> None:
    """One result for each text, in order, and each its source."""
    passages = [Passage(text=text, rate=0.5) for text in texts]

    results = compress_checked(NullCompressor(), passages)

    assert [one.text(text) for one, text in zip(results, texts, strict=True)] == texts


def test_kept_ranges_are_put_together_in_order() -> None:
    """The output is a subsequence of the source."""
    assert Compressed(kept=((0, 2), (4, 5))).text("abcdef") == "abe"


@pytest.mark.parametrize("rate", [0, -0.5, 1.01, float("nan"), float("inf")])
def test_a_rate_keeps_something_and_not_more_than_all(rate: float) -> None:
    """Above 0, at most 1."""
    with pytest.raises(ValueError, match="rate"):
        Passage(text="a text", rate=rate)


@pytest.mark.parametrize("spans", [((0, 9),), ((2, 3), (1, 2)), ((0, 2), (1, 3)), ((1, 1),)])
def test_protected_spans_lie_in_the_text_in_order(spans: Spans) -> None:
    """Neither outside, nor overlapping, nor empty."""
    with pytest.raises(ValueError, match="protected"):
        Passage(text="a text", rate=0.5, protected=spans)


@pytest.mark.parametrize(
    "kept",
    [((0, 99),), ((2, 3), (1, 2)), ((0, 3), (2, 4)), ((3, 3),), ((-1, 2),), ((0, 2), (3, 6)), ()],
)
def test_what_breaks_the_protocol_is_not_used(kept: Spans) -> None:
    """Spans outside the text, out of order, or without all that is protected are a fault."""
    passage = Passage(text="a text", rate=0.5, protected=((1, 3),))

    with pytest.raises(CompressorFault):
        compress_checked(Returning(kept), [passage])


def test_a_missing_result_is_a_fault() -> None:
    """As many results as passages."""
    with pytest.raises(CompressorFault, match="0 results for 1"):
        compress_checked(Returning(), [Passage(text="a", rate=0.5)])


def test_protection_may_be_kept_in_pieces_that_touch() -> None:
    """What counts is that no character is lost."""
    passage = Passage(text="abcdef", rate=0.5, protected=((1, 3), (3, 5)))

    [result] = compress_checked(Returning(((0, 2), (2, 4), (4, 5))), [passage])

    assert result.text(passage.text) == "abcde"


def test_whatever_decides_the_output_is_in_the_key() -> None:
    """Compressor, text, rate, protected spans and the secret key; equal ones give equal keys."""
    passage = Passage(text="ab", rate=0.5, protected=((0, 1),))
    digest = digest_of("name", "1", {"language": "en"})
    others = [
        cache_key(digest_of("name", "2", {"language": "en"}), passage),
        cache_key(digest_of("name", "1", {"language": "de"}), passage),
        cache_key(digest, replace(passage, text="abc")),
        cache_key(digest, replace(passage, rate=0.25)),
        cache_key(digest, replace(passage, protected=((0, 2),))),
        cache_key(digest, replace(passage, protected=())),
        cache_key(digest, passage, key=b"secret"),
    ]

    keys = {cache_key(digest, passage), *others}

    assert len(keys) == 8
    assert cache_key(digest, replace(passage)) in keys


def test_options_have_no_order() -> None:
    """The same options are the same compressor."""
    assert digest_of("a", "1", {"x": 1, "y": 2}) == digest_of("a", "1", {"y": 2, "x": 1})
