"""`sentences`: where sentences end, which ones go, and what never changes."""

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefold.compression.compressor import Passage, compress_checked
from prefold.compression.protect import protect
from prefold.compression.sentences import SentenceCompressor
from prefold.compression.sentences_choice import repeated, representative, similarities
from prefold.compression.sentences_split import groups_of_sentences, sentences_of
from prefold.compression.words import Floats, split
from tests.support.ngram_embedder import NgramEmbedder

SENTENCES = SentenceCompressor(NgramEmbedder())
TEXT = (
    "The old bridge over the river will be closed in winter. Residents are unhappy about it. "
    "They have to drive around the lake now. The old bridge over the river will be closed in "
    "winter! A bakery sells bread there. Repair would cost more than the town can pay."
)


def cut(text: str) -> list[str]:
    words = split(text, protect(text))
    return [
        text[int(words.starts[first]) : int(words.ends[after - 1])]
        for first, after in pairwise(sentences_of(words).tolist())
    ]


def shorten(text: str, rate: float = 0.5, compressor: SentenceCompressor = SENTENCES) -> str:
    passage = Passage(text=text, rate=rate, protected=protect(text))
    return compress_checked(compressor, [passage])[0].text(text)


@pytest.mark.parametrize(
    "sentences",
    [
        ["It rains.", "Is it cold?", "Very!", "So be it…", "Good."],
        ["Mr. Smith of the U.S. Navy met J. R. Brown, e.g. at noon.", "He left."],
        ["It costs 3.5 million.", "It was 4.2.", "See main.py for more."],
        ['He said "stop." and left.', '"Go!"', "(It went.)", "Then silence."],
        ["- one thing", "- another thing", "1. a third", "2. a fourth one."],
        ["A heading\n\n", "Its text begins here.", "It ends here."],
        ["서울시는 요금을 올리기로 했다.", "시민들은 반대했다.", "왜 그랬을까?", "모른다."],
        ["市政府昨天宣布提高票价。", "市民不同意！", "为什么？", "“我不去。”他说。"],
        ["東京都は運賃を上げる。", "市民は「反対だ。」と言った。", "本当に？", "そうです。"],
        ["Это было вчера.", "Никто не пришёл!", "यह ठीक है।", "क्यों?", "هل هذا صحيح؟", "نعم."],
    ],
)
def test_sentences_end_where_readers_see_their_end(sentences: list[str]) -> None:
    """In several scripts; not at abbreviations, initials, decimals or inside quotations."""
    spaced = not re.search("[。！]", sentences[0])
    lines = sentences[0].startswith("-")
    text = ("\n" if lines else " " if spaced else "").join(sentences)

    assert cut(text) == [sentence.strip() for sentence in sentences]


def test_what_repeats_an_earlier_sentence_goes() -> None:
    """And the earlier one stays, at any rate below 1."""
    short = shorten(TEXT, 0.95)

    assert "closed in winter." in short
    assert "closed in winter!" not in short
    assert shorten(TEXT, 1.0) == TEXT


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The council will certainly close the bridge.", "The council will not close the bridge."),
        ("Tonight the prize went to Anna again.", "Tonight the prize went to Hanna again."),
        ("시민 단체는 이 결정에 찬성한다고 말했다.", "시민 단체는 이 결정에 반대한다고 말했다."),
        ("市民团体昨天在会上表示同意。", "市民团体昨天在会上表示反意。"),
    ],
)
def test_a_sentence_that_says_something_else_is_no_repetition(first: str, second: str) -> None:
    """However alike their vectors: another name, or one negation more."""
    careless = SentenceCompressor(NgramEmbedder(), alike=0.3)
    text = f"{first} {second}"

    assert shorten(text, 0.99, careless) == text


def test_what_is_protected_keeps_its_sentence() -> None:
    """Whole, since a number without its sentence says nothing."""
    text = TEXT + " The bill came to $4,200 in the end."

    assert "The bill came to $4,200 in the end." in shorten(text, 0.2)


def test_what_the_model_cannot_read_stays() -> None:
    """It was never asked about it."""
    compressor = SentenceCompressor(NgramEmbedder(unread="bakery"))

    assert "A bakery sells bread there." in shorten(TEXT, 0.2, compressor)


def test_a_paragraph_never_vanishes_and_headings_stay() -> None:
    """A paragraph of one sentence has nothing that stands for it."""
    short = shorten(f"A heading\n\n{TEXT}\n\nOne closing sentence stands here.", 0.1)

    assert short.startswith("A heading\n\n")
    assert short.endswith("\n\nOne closing sentence stands here.")
    assert len(short.split("\n\n")) == 3


SENTENCE = st.sampled_from(
    [
        *("The bridge is closed.", "Bread is sold!", "No one came.", "Why not?", "- item one"),
        *(
            "The bridge was closed.",
            "서울은 춥다.",
            "왜?",
            "天气很好。",
            "行かない。",
            "3 of 4 agree.",
        ),
        *("`x = 1`", "😀 yes.", "...", ".", "no end", "(", "A. ", "\ud800."),
    ]
)
GAP = st.sampled_from([" ", "\n", "\n\n", "  ", ""])
DOCUMENT = st.lists(st.tuples(SENTENCE, GAP), max_size=60).map(
    lambda parts: "".join([sentence + gap for sentence, gap in parts])
)


@settings(deadline=None)
@given(DOCUMENT, st.sampled_from([0.01, 0.3, 0.5, 0.9, 1.0]))
def test_any_text_is_shortened_by_whole_sentences(text: str, rate: float) -> None:
    """Each sentence stays whole or goes whole; the same bytes alone and among others."""
    passage = Passage(text=text, rate=rate, protected=protect(text))
    other = Passage(text=TEXT, rate=0.5)

    [alone] = compress_checked(SENTENCES, [passage])
    among = compress_checked(SENTENCES, [other, passage, other])

    assert among[1] == alone
    words = split(text, passage.protected)
    for first, after in pairwise(sentences_of(words).tolist()):
        start, end = int(words.starts[first]), int(words.ends[after - 1])
        stays = "".join([text[max(a, start) : min(b, end)] for a, b in alone.kept if a < b])
        assert not stays.strip() or stays == text[start:end]  # a line end of it may stay


@settings(deadline=None)
@given(DOCUMENT, DOCUMENT)
def test_paragraphs_before_do_not_change_with_what_follows(first: str, second: str) -> None:
    """So a document that grows keeps its compressed beginning."""
    head = f"Begin here. {first}x.\n\n"
    before, grown = shorten(head + "End."), shorten(head + f"End.\n\n{second}")

    assert grown.startswith(before.removesuffix("End.").rstrip())


@settings(deadline=None)
@given(DOCUMENT)
def test_groups_cover_all_sentences_and_end_with_paragraphs(text: str) -> None:
    """Bounds rise from 0 to the number of sentences; no group holds words of two paragraphs."""
    words = split(text, protect(text))
    if not len(words):
        return
    sentences = sentences_of(words)

    groups = groups_of_sentences(words, sentences).tolist()

    assert groups[0] == 0
    assert groups[-1] == len(sentences) - 1
    for first, after in pairwise(groups):
        assert 0 < after - first <= 40
        assert not words.breaks[sentences[first] + 1 : sentences[after]].any()


VECTORS = st.integers(1, 12).flatmap(
    lambda count: st.lists(
        st.lists(st.integers(-3, 3), min_size=3, max_size=3), min_size=count, max_size=count
    )
)


def units(rows: list[list[int]]) -> Floats:
    vectors: Floats = np.array(rows, dtype=np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return vectors


@given(VECTORS, st.data())
def test_repetitions_are_those_of_the_definition(
    rows: list[list[int]], data: st.DataObject
) -> None:
    """Compared with a plain double loop."""
    vectors = units(rows)
    forced = np.array([data.draw(st.booleans()) for _ in rows])
    facts = [data.draw(st.integers(0, 1)) for _ in rows]
    expected: list[bool] = []
    for row in range(len(rows)):
        twins = [
            other
            for other in range(max(0, row - 5), row)
            if not expected[other]
            and facts[other] == facts[row]
            and round(float(vectors[row] @ vectors[other]), 4) >= 0.9
        ]
        expected.append(bool(twins) and not forced[row])

    assert repeated(vectors, facts, forced, 0.9, reach=5).tolist() == expected


@given(VECTORS, st.sampled_from([0.1, 0.5, 0.9]), st.data())
def test_the_rate_is_met_to_the_nearest_sentence(
    rows: list[list[int]], rate: float, data: st.DataObject
) -> None:
    """Forced ones stay, what is out goes, at least one stays, and half a sentence is the error."""
    vectors = units(rows)
    weights = np.array([float(data.draw(st.integers(1, 9))) for _ in rows])
    forced = np.array([data.draw(st.booleans()) for _ in rows])
    out = np.array([data.draw(st.booleans()) for _ in rows]) & ~forced

    keep = representative(similarities(vectors, vectors), weights, forced, out, rate)

    assert keep[forced].all()
    assert not keep[out].any()
    assert keep.any() or out.all()
    chosen, held = weights[keep & ~forced], weights[forced].sum()
    budget = max(rate * weights.sum() - held, rate / 2 * (weights.sum() - held))
    assert len(chosen) <= 1 or chosen.sum() <= budget + chosen.max() / 2


def test_the_first_choice_stands_for_most() -> None:
    """Of three alike and one apart, one of the three is chosen, then the one apart."""
    vectors = units([[0, 0, 3], [3, 1, 0], [3, 0, 0], [3, -1, 0]])
    alike = similarities(vectors, vectors)
    none, weights = np.zeros(4, dtype=np.bool_), np.ones(4)

    assert representative(alike, weights, none, none, 0.25).tolist() == [False, False, True, False]
    assert representative(alike, weights, none, none, 0.5).tolist() == [True, False, True, False]
