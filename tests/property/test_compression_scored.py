"""The pipeline of scoring compressors, whatever the scores: what every output has."""

from hypothesis import given, settings
from hypothesis import strategies as st

from prefold.compression.compressor import Passage, compress_checked
from prefold.compression.protect import protect
from prefold.compression.scored import ScoredCompressor
from tests.support.hash_scorer import HashScorer

NAMES = 'the old bridge over river was closed by council, because of money. Who? said (he) "no"!'
PROSE = st.lists(
    st.sampled_from(
        [*NAMES.split(), "漢字を書く。", "한국어", "👩‍👩‍👧", "e\u0301te", "\n", "7 kg"]
    ),
    max_size=80,
).map(" ".join)
ANY = st.text(max_size=60) | PROSE
RATES = st.sampled_from([0.01, 0.2, 0.5, 0.8, 0.99, 1.0])


def shorten(text: str, rate: float) -> str:
    passage = Passage(text=text, rate=rate, protected=protect(text))
    [result] = compress_checked(ScoredCompressor(HashScorer()), [passage])
    return result.text(text)


@given(st.lists(st.tuples(ANY, RATES), max_size=5))
def test_neighbours_in_a_batch_change_nothing(items: list[tuple[str, float]]) -> None:
    """A passage gives the same alone and among others; every output obeys the protocol."""
    passages = [Passage(text=text, rate=rate, protected=protect(text)) for text, rate in items]

    together = compress_checked(ScoredCompressor(HashScorer()), passages)

    outputs = [one.text(item[0]) for one, item in zip(together, items, strict=True)]
    assert outputs == [shorten(text, rate) for text, rate in items]


@given(PROSE, PROSE, RATES)
@settings(max_examples=200)
def test_a_paragraph_gives_the_same_wherever_it_stands(
    first: str, second: str, rate: float
) -> None:
    """So it stays the same prefix or the same document in any prompt."""
    first, second = first.strip(), second.strip()

    together = shorten(f"{first}\n\n{second}", rate)

    assert together.strip() == f"{shorten(first, rate)}\n\n{shorten(second, rate)}".strip()


@given(ANY, RATES)
def test_what_is_kept_reads_in_order_without_joined_words(text: str, rate: float) -> None:
    """Every word of the output is a word of the source, or ends in a sentence's mark."""
    output = shorten(text, rate)

    before = text.split()
    for word in output.split():
        assert any(word in one for one in before) or word[-1] in ".!?。\"')", word


@given(PROSE)
def test_a_higher_rate_keeps_no_fewer_words(text: str) -> None:
    """And a rate of 1 keeps the text."""
    lengths = [len(shorten(text, rate)) for rate in (0.1, 0.3, 0.6, 0.9)]

    assert lengths == sorted(lengths)
    assert shorten(text, 1.0) == text


@given(st.integers(200, 2000), st.floats(0.1, 0.9))
@settings(max_examples=30)
def test_the_rate_that_was_asked_is_reached(count: int, rate: float) -> None:
    """Within 2 % of the words, or half a word in each group."""
    words = [
        f"{chr(97 + i % 26)}{chr(97 + i * 7 % 26)}{chr(97 + i // 26 % 26)}" for i in range(count)
    ]
    text = "".join(word + (". " if i % 11 == 10 else " ") for i, word in enumerate(words))

    kept = len(shorten(text, rate).replace(".", " ").split())

    assert abs(kept - rate * count) <= 0.02 * count + 1
