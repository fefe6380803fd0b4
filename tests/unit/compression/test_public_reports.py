"""What users of other prompt compressors reported, and where it is a test here.

Those that a text alone shows are tests below; the table names where the others are.
"""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

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
TESTS = Path(__file__).parents[2]
PROSE = (
    "The committee of the town was asked to close the bridge over the river, for it was old and "
    "it was not thought to be safe for all of the people who had to go over it in the winter."
)

ELSEWHERE = {
    # LLMLingua
    "#14, #144 empty text": "unit/compression/test_lexical.py::"
    "test_texts_at_the_edges_stay_whole_or_lose_nothing_but_words",
    "#55 CUDA where there is none": "compression/test_model_tiers.py::"
    "test_what_a_machine_does_not_have_is_said",
    "#93 plates and IDs corrupted": "unit/compression/test_lexical.py::"
    "test_a_plate_number_and_an_id_are_not_corrupted",
    "#136 slower with a local model": "integration/test_compression_path.py::"
    "test_the_gate_decides_by_what_prefill_costs",
    "#147 long text, too much memory": "unit/compression/test_lexical.py::"
    "test_a_million_characters_are_done",
    "#168 a local path": "compression/test_package.py::"
    "test_a_classifier_in_a_folder_of_any_name_is_known",
    "#181 wrong special tokens": "compression/test_package_parity.py::"
    "test_the_two_ways_with_special_tokens_differ_for_xlm_r_only",
    "#195 another rate than asked": "property/test_compression_scored.py::"
    "test_the_rate_that_was_asked_is_reached",
    "#210, #215 the cache of newer transformers": "compression/test_package.py::"
    "test_caches_sliced_as_lists_give_what_one_pass_gives",
    "js#15 parity not guaranteed": "compression/test_package_parity.py::"
    "test_every_word_is_judged_as_the_package_judges_it",
    "Selective_Context#18 words joined": "property/test_compression_scored.py::"
    "test_what_is_kept_reads_in_order_without_joined_words",
    # Proxies that compress
    "headroom#327, #2438 cache hits lost": "integration/test_compression_engines.py::"
    "test_a_conversation_keeps_its_reuse",
    "headroom#572 a time-out fails the request": "integration/test_compression_path.py::"
    "test_a_compressor_that_hangs_is_replaced",
    "headroom#2360 one hung worker, for ever": "integration/test_compression_path.py::"
    "test_what_was_slow_is_not_thought_slow_for_ever",
    "9router#3066 work for a client that left": "integration/test_compression_path.py::"
    "test_a_client_that_leaves_takes_its_work_with_it",
    "litellm#33295 savings of what was not sent": "integration/test_compression_path.py::"
    "test_in_the_shadow_the_original_goes_out",
    "pruning#491 the compressed form not used": "integration/test_compression_path.py::"
    "test_documents_are_compressed_and_nothing_else",
}


def shorten(text: str, rate: float = 0.5) -> str:
    passage = Passage(text=text, rate=rate, protected=protect(text))
    return compress_checked(LEXICAL, [passage])[0].text(text)


@pytest.mark.parametrize("place", ELSEWHERE.values(), ids=ELSEWHERE.keys())
def test_what_was_reported_is_a_test(place: str) -> None:
    """The test that the table names is there."""
    file, name = place.split("::")

    assert f"def {name}(" in (TESTS / file).read_text("utf-8")


@pytest.mark.parametrize(
    "text",
    [
        "北京市政府昨天宣布，从明年起将提高公共汽车的票价，市民团体表示强烈反对。𠮷野家👨‍👩‍👧🇰🇷",
        "東京都は来年の春からバスの運賃を値上げすると発表した。𠮷野家の前で市民が集まった👍🏽。",
        "Le cafe\u0301 de la ville e\u0301tait ferme\u0301 pour les e\u0301le\u0300ves d'ici",
    ],
)
def test_no_character_is_garbled(text: str) -> None:
    """LLMLingua#4, #63: nothing is decoded from pieces; what belongs to a letter stays there."""
    short = shorten(text, 0.4)

    assert "\ufffd" not in short
    short.encode("utf-8")
    assert not re.search(r"(?:^|\s)[\u0300-\u036f\u200d\ufe0f\U0001f3fb-\U0001f3ff]", short)


def test_every_document_is_compressed() -> None:
    """LLMLingua#73: the last one too, to the rate that was asked."""
    texts = [f"{PROSE} {PROSE} This is of {name}." for name in ("Ada", "Bob", "Eve", "Joe")]

    made = compress_checked(LEXICAL, [Passage(text=text, rate=0.5) for text in texts])

    for text, kept in zip(texts, made, strict=True):
        share = len(kept.text(text).split()) / len(text.split())
        assert 0.45 <= share <= 0.55


def test_what_is_protected_stays_among_what_is_not() -> None:
    """LLMLingua#114: letter by letter, and the prose around it goes."""
    text = f"{PROSE} <keep>Do not touch the the the of of it.</keep> {PROSE}"

    short = shorten(text, 0.3)

    assert "<keep>Do not touch the the the of of it.</keep>" in short
    assert len(short) < 0.6 * len(text)


def test_code_is_no_error_and_stays_code() -> None:
    """LLMLingua#137: a fenced program runs as before."""
    code = "```python\ndef f(of, the):\n    return {'a': [of, the]}\n```"

    short = shorten(f"{PROSE}\n\n{code}\n\n{PROSE}", 0.3)

    assert code in short
    exec(compile(code.strip("`").removeprefix("python"), "fenced", "exec"), {})


def test_short_texts_are_shortened_too() -> None:
    """LLMLingua#196: there is no step of 200 tokens below which nothing happens."""
    assert len(shorten(PROSE).split()) <= 0.6 * len(PROSE.split())


def test_the_last_sentence_is_not_cut_off() -> None:
    """LLMLingua#213: something of it stays, with its final mark."""
    text = f"{PROSE} {PROSE} And in the end the mayor Olsen went home to think about all of it."

    short = shorten(text)

    assert "Olsen" in short
    assert short.endswith(".")


@pytest.mark.parametrize(
    "noise",
    ['{"a": [1, {"b": "the of and"}]} ', '{"a": ', "]]]}}} ", '\\"\\u0000\\" ', "[] {} null "],
)
def test_json_amid_prose_loses_nothing_and_raises_nothing(noise: str) -> None:
    """LightMem#12: whole objects stay valid; what is none is no error."""
    short = shorten(f"{noise}{PROSE}\n{noise}\n{PROSE}", 0.3)

    assert 0 < len(short) < len(f"{noise}{PROSE}\n{noise}\n{PROSE}")
    if noise.startswith('{"a": [1'):
        assert json.loads(short.splitlines()[1]) == json.loads(noise)


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.found.append(f"/{tag}")


def test_tags_stay_where_they_were() -> None:
    """headroom#71: none is lost, none comes at another place."""
    text = f"<div class='the of'><p>{PROSE}</p>\n<p>{PROSE} <b>{PROSE}</b></p></div>"

    assert Tags(shorten(text, 0.3)).found == Tags(text).found


def test_one_marker_does_not_switch_compression_off() -> None:
    """headroom#2291: only what it marks is left alone."""
    marked = f"<keep>{PROSE}</keep>"

    short = shorten("\n\n".join([PROSE] * 3 + [marked] + [PROSE] * 3), 0.4)

    assert marked in short
    for place, paragraph in enumerate(short.split("\n\n")):
        assert (len(paragraph) > len(PROSE)) is (place == 3)


def test_records_keep_their_boundaries() -> None:
    """lean-ctx#1387: what is said in a line is not attributed to the line before."""
    names = ("Ada", "Bob", "Eve", "Joe", "Kim")
    text = "\n".join(f"{name} Olsen: {PROSE}" for name in names)

    lines = shorten(text, 0.3).split("\n")

    assert len(lines) == len(names)
    for name, line in zip(names, lines, strict=True):
        assert name in line or "Olsen" in line


def test_nothing_is_added() -> None:
    """headroom#1006: no marker stands for what was left out, so none can be left unresolved."""
    text = f"{PROSE} <|endoftext|> [NEW0] {PROSE}"
    rest = iter(text)

    assert all(character in rest for character in shorten(text, 0.3))
