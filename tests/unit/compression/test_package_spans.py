"""A shortened text of the package, found again in its source."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefold.compression.compressor import Compressed, CompressorFault
from prefold.compression.llmlingua_package_spans import kept_spans


def found(text: str, short: str) -> str:
    return Compressed(kept=kept_spans(text, short, ())).text(text)


@pytest.mark.parametrize(
    ("text", "short", "expected"),
    [
        ("The old bridge is closed.", "bridge closed.", "bridge closed."),
        ("In 1987 it made 4.2 million.", "In 987 4 . million .", "In 987 4. million."),
        ("It is an internationalisation.", "internation isation", "internationisation"),
        ("Send f(x) on.\n\nThen rest.", "f ( x ) on Then", "f(x) on\n\nThen"),
        ("票价，上涨了。", "票价,了。", "票价，了。"),
        ("that hat is the hat", "the hat", "the hat"),
        ("all of it", "", ""),
    ],
)
def test_letters_are_the_packages_and_spaces_the_sources(
    text: str, short: str, expected: str
) -> None:
    """Whatever white space decoded tokens have."""
    assert found(text, short) == expected


@pytest.mark.parametrize("short", ["bridges", "old The", "The old bridge closed.", "a\ufffd", "…"])
def test_what_the_source_does_not_hold_is_a_fault(short: str) -> None:
    """Broken characters, another order, a letter too many: never a guess."""
    with pytest.raises(CompressorFault, match="no subsequence"):
        kept_spans("The old bridge.", short, ())


def test_protected_spans_stay_whole_with_the_space_in_them() -> None:
    """Also where the package kept a part of them, or nothing near them."""
    text = "It cost 4.2 million then, see a  b there."
    spans = ((8, 19), (30, 34))

    kept = kept_spans(text, "It 2 mill", spans)

    assert Compressed(kept=kept).text(text) == "It 4.2 million a  b"


LETTERS = st.text(alphabet="ab c，d\n", max_size=60)


@settings(deadline=None)
@given(LETTERS, st.data())
def test_every_subsequence_is_found(text: str, data: st.DataObject) -> None:
    """Its letters, all of them, and no other; with any white space between."""
    stays = [data.draw(st.booleans()) for _ in text]
    spaced = [data.draw(st.sampled_from(["", " "])) for _ in text]
    short = "".join(
        [letter + space for letter, stay, space in zip(text, stays, spaced, strict=True) if stay]
    )

    assert "".join(found(text, short).split()) == "".join(short.split())


@settings(deadline=None)
@given(LETTERS, LETTERS)
def test_what_is_no_subsequence_is_refused(text: str, short: str) -> None:
    """Compared with the plain definition."""
    letters = iter("".join(text.split()).replace("，", ","))
    is_one = all(letter in letters for letter in "".join(short.split()).replace("，", ","))

    try:
        kept_spans(text, short, ())
    except CompressorFault:
        assert not is_one
    else:
        assert is_one
