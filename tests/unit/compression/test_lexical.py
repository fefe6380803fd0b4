"""Words by rarity: what stays and what goes, in several scripts."""

import pytest

from prefold.compression.compressor import CompressorUnavailable, Passage, compress_checked
from prefold.compression.lexical import LexicalScorer
from prefold.compression.protect import protect
from prefold.compression.scored import ScoredCompressor
from tests.support.requirements import skip_or_fail

try:
    LexicalScorer()
except CompressorUnavailable:
    skip_or_fail("wordfreq is missing: pip install 'prefold[compression-lexical]'")

LEXICAL = ScoredCompressor(LexicalScorer())


def shorten(text: str, rate: float = 0.5) -> str:
    passage = Passage(text=text, rate=rate, protected=protect(text))
    return compress_checked(LEXICAL, [passage])[0].text(text)


def test_common_words_go_first() -> None:
    """What everybody writes everywhere says least."""
    text = "The committee of the town was asked to close the bridge over the river in the winter."

    assert shorten(text).split() == [
        "committee",
        "town",
        "was",
        "asked",
        "close",
        "bridge",
        "over",
        "river",
        "winter.",
    ]


def test_names_stay_before_rare_words() -> None:
    """A capital inside a sentence weighs more than rarity."""
    text = "yesterday a colleague called Will walked into an office near the embankment of a river"

    assert "Will" in shorten(text, 0.3)


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("It was said that the plan was not safe for the people who live in the town.", "not safe"),
        ("They said that we don't need it and that it would be there for all of us.", "don't need"),
        (
            "시민 단체들은 오늘 회의에서 이 결정에 반대하지 않는다고 시장에게 말했다.",
            "반대하지 않는다고",
        ),
        ("市民团体昨天在会议上表示他们不同意这个决定。", "不同意"),
        ("市民団体は昨日の会議でこの決定に賛成していないと述べた。", "ない"),
    ],
)
def test_a_negation_stays_with_what_it_negates(text: str, needed: str) -> None:
    """Without it the sentence says the opposite."""
    assert needed in shorten(text)


@pytest.mark.parametrize(
    "text",
    [
        "서울시는 내년부터 시내버스 요금을 크게 올리기로 했다고 오늘 밝혔다. 시민들은 놀랐다.",
        "北京市政府昨天宣布，从明年起将提高公共汽车的票价。市民团体表示反对。",
        "東京都は来年の春からバスの運賃を値上げすると発表した。市民団体は反対した。",
        "Правительство города объявило вчера, что со следующего года билеты будут стоить больше.",
        "أعلنت حكومة المدينة أمس أن أسعار التذاكر سوف ترتفع في العام المقبل إلى حد كبير.",
    ],
)
def test_other_scripts_are_shortened_too(text: str) -> None:
    """To about the rate, and to whole words of theirs."""
    assert 0.3 * len(text) <= len(shorten(text)) <= 0.8 * len(text)


def test_chinese_and_japanese_are_cut_between_words() -> None:
    """As their dictionaries part them, traditional characters too."""
    scorer = LexicalScorer()

    assert scorer.segment("公共汽车") == [4]
    assert scorer.segment("會議召開") == [2, 2]
    assert scorer.segment("東京でバスに") == [2, 1, 2, 1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\n\n",
        "word",
        "👩‍👩‍👧",
        "x" * 4000,
        "漢" * 4000,
        "<|endoftext|>",
        "[NEW0] [CLS] </s>",
        "\ud800 " * 9,
    ],
)
def test_texts_at_the_edges_stay_whole_or_lose_nothing_but_words(text: str) -> None:
    """Empty, one word, one long word, words that models would take for their own."""
    short = shorten(text)

    assert len(short) <= len(text)
    assert short or not text.strip()


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.999, 1.0])
def test_rates_at_the_edges(rate: float) -> None:
    """The lowest still keeps negations' and protected words, the highest all."""
    text = "The invoice of 1987 was not paid by the man from the office in the old town for years."

    short = shorten(text, rate)

    assert "1987" in short
    assert (short == text) is (rate >= 0.99)


def test_a_plate_number_and_an_id_are_not_corrupted() -> None:
    """Nor anything with digits, at the lowest rate."""
    text = (
        "the car with the plate 京A·12345 and the id 110101199003077578 was seen on the road again"
    )

    for needed in ("A·12345", "110101199003077578"):
        assert needed in shorten(text, 0.05)


def test_a_million_characters_are_done() -> None:
    """Prose of that length is split, scored and put together again."""
    text = (
        "The committee of the town was asked to close the bridge, for it was old and unsafe. "
        * 12_000
    )

    assert 0.4 < len(shorten(text)) / len(text) < 0.75


def test_what_decides_scores_names_the_compressor() -> None:
    """The language, the lists' release and the dictionaries."""
    assert ScoredCompressor(LexicalScorer("de")).digest != LEXICAL.digest
    assert "wordfreq" in LEXICAL.revision


def test_an_unknown_language_is_refused() -> None:
    """With its name."""
    with pytest.raises(CompressorUnavailable, match="'xx'"):
        LexicalScorer("xx")
