"""The compressor protocol's null case."""

from hypothesis import given
from hypothesis import strategies as st

from prefold.compression.compressor import Compressed, NullCompressor


@given(st.lists(st.text(), max_size=4))
def test_the_null_compressor_keeps_every_text_whole(texts: list[str]) -> None:
    """One result for each text, in order, and each its source."""
    results = NullCompressor().compress(texts)

    assert [one.text(text) for one, text in zip(results, texts, strict=True)] == texts


def test_kept_ranges_are_put_together_in_order() -> None:
    """The output is a subsequence of the source."""
    assert Compressed(kept=((0, 2), (4, 5))).text("abcdef") == "abe"
