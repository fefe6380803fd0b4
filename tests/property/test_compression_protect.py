"""Protection against any text: well-formed spans, and time that grows with length only."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.compression.compressor import Passage
from prefold.compression.protect import Protection, protect
from prefold.compression.words import split

MARKUP = ("```\n", "~~~\n", "`", "``", "{", '{"a', '"', "[1", "]", "}", "\\", "<", "<a ", "<pre>")
CLOSING = (
    "</pre>",
    ">",
    "<!--",
    "-->",
    "|",
    "\t",
    "a,b,c\n",
    "<keep>",
    "</keep>",
    "(",
    ")",
    "{{",
    "“",
)
WORDS = (
    "\n",
    "\n\n",
    " ",
    "1",
    "3 kg ",
    "word ",
    "@",
    "/",
    ".",
    "漢字",
    "かな",
    "한국어 ",
    "e\u0301",
)
STRANGE = ("👩\u200d👩\u200d👧", "\ud800", "\u200b", "\x00", "\u2028", "\r\n", "‏")
SNIPPETS = st.sampled_from(MARKUP + CLOSING + WORDS + STRANGE)
TEXTS = st.lists(SNIPPETS | st.text(max_size=4), max_size=30).map("".join)
RULES = Protection(quotes=(("“", "”"), ('"', '"')))


@given(TEXTS)
def test_spans_are_in_order_disjoint_and_inside(text: str) -> None:
    """As Passage demands."""
    Passage(text=text, rate=0.5, protected=protect(text, RULES))


@given(TEXTS)
def test_every_digit_is_protected(text: str) -> None:
    """Wherever it stands."""
    inside = [place for start, end in protect(text) for place in range(start, end)]

    assert {m.start() for m in re.finditer(r"\d", text)} <= set(inside)


@given(TEXTS)
def test_every_character_but_white_space_is_in_one_word(text: str) -> None:
    """Words part the text, in order, and a protected span lies in a single one."""
    spans = protect(text, RULES)
    words = split(text, spans)
    counts: Counter[int] = Counter()
    for start, end in zip(words.starts.tolist(), words.ends.tolist(), strict=True):
        counts.update(range(start, end))
    owners = [
        [row for row in range(len(words)) if words.starts[row] < end and words.ends[row] > start]
        for start, end in spans
    ]

    assert max(counts.values(), default=1) == 1
    assert all(place in counts or text[place].isspace() for place in range(len(text)))
    assert all(len(rows) == 1 and words.forced[rows[0]] for rows in owners)
    assert sorted(words.starts.tolist()) == words.starts.tolist()
    assert (words.spaces <= words.starts).all()
    assert (words.tails >= words.starts).all()
    assert (words.tails <= words.ends).all()


@pytest.mark.parametrize(
    "unit",
    [*MARKUP, *CLOSING, *WORDS, "a", "a@", '{"\n', "` ", '\\"', "1 ", "|\n", "a.", "```x\n", "{ "],
)
@pytest.mark.timeout(60)
def test_a_long_text_of_any_kind_is_done(unit: str) -> None:
    """What makes regular expressions slow does not: squares of 200,000 would never end."""
    text = unit * (200_000 // len(unit))

    spans = protect(text, RULES)

    assert len(split(text, spans)) <= len(text)
