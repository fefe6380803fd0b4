"""Mode `reference` takes the decisions of the package `llmlingua`, which runs beside it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from prefold.compression.compressor import Passage, compress_checked
from prefold.compression.llmlingua2_reference import ReferenceCompressor, ReferenceOptions
from prefold.compression.token_classifier import Probabilities, TokenClassifier
from prefold.compression.torch_models import Placement
from tests.compression.package import cl100k_tokens, run_package
from tests.compression.tiny_models import SENTENCES

TEXTS = {
    "one sentence": SENTENCES[0],
    "all languages": " ".join(SENTENCES),
    "several chunks": "\n".join(SENTENCES * 14),
    "no full stops": "never ending words go on and on, without a stop " * 120,
    "code": "\n".join([SENTENCES[-1]] * 5),
    "one word": "bridge",
    "emoji": "the 👩‍👩‍👧 said 😀 that the bridge 🌉 is closed for the winter.",
    "special tokens": "a [SEP] b </s> c <s> d [CLS] e <unk> f [UNK] g [PAD] h ## i ▁ j",
    "white space": "  the bridge \t over \n\n\n the   river.  ",
    "digits": "plate 12-AB-345, id 110101199003077578, on 2024-05-01 at 10:30 for $1,000.50",
    "repeated": "the the the the the the the the the the the the",
    "joined to a chunk's end": "x." * 700,
}
OPTIONS: list[dict[str, Any]] = [
    {"rate": rate, "force_reserve_digit": digits, "token_to_word": word}
    for rate in (0.1, 0.33, 0.5, 0.55, 0.75, 0.9)
    for digits in (False, True)
    for word in ("mean", "first")
]


@pytest.mark.parametrize("kind", ["bert", "xlm"])
@pytest.mark.timeout(900)
def test_every_word_is_judged_as_the_package_judges_it(kind: str, folders: dict[str, Path]) -> None:
    """The same words in the same order, the same ones kept: for all texts, rates and options."""
    folder = folders[kind]
    classifier = TokenClassifier(str(folder), revision=None, placement=Placement())
    jobs = [
        {"texts": [text], "use_context_level_filter": False, **options}
        for text in TEXTS.values()
        for options in OPTIONS
    ]

    answers = iter(run_package(folder, jobs))

    differing = []
    for name, text in TEXTS.items():
        for options in OPTIONS:
            judged = reference(classifier, options).judge([text], [options["rate"]])[0]
            words = [word for chunk in judged for word in chunk.words]
            labels = [int(keep) for chunk in judged for keep in chunk.keep.tolist()]
            answer = next(answers)
            assert words == answer["words"], name
            if labels != answer["labels"]:
                differing.append((name, options))
    assert not differing


def reference(classifier: TokenClassifier, options: dict[str, Any]) -> ReferenceCompressor:
    chosen = ReferenceOptions(
        first_token=options["token_to_word"] == "first",
        reserve_digits=options["force_reserve_digit"],
    )
    return ReferenceCompressor(classifier, chosen, cl100k_tokens, "cl100k")


@pytest.mark.parametrize("kind", ["bert", "xlm"])
def test_what_stays_is_what_was_decided(kind: str, folders: dict[str, Path]) -> None:
    """The kept words, in order, with the source's own spelling; what was never judged too."""
    classifier = TokenClassifier(str(folders[kind]), revision=None, placement=Placement())
    compressor = reference(classifier, OPTIONS[8])
    text = SENTENCES[0]

    [result] = compress_checked(compressor, [Passage(text=text, rate=0.5)])
    [chunk] = compressor.judge([text], [0.5])[0]

    kept = [word for word, keep in zip(chunk.words, chunk.keep.tolist(), strict=True) if keep]
    assert result.text(text).replace(" ", "") == "".join(kept)


class Recording(TokenClassifier):
    """Remembers with which ids the rows began and ended."""

    ends: frozenset[tuple[int, int]] = frozenset()

    def probabilities(
        self, rows: Sequence[Sequence[int]], *, hide_padding_ids: bool = False
    ) -> list[Probabilities]:
        self.ends = frozenset((row[0], row[-1]) for row in rows)
        return super().probabilities(rows, hide_padding_ids=hide_padding_ids)


def test_the_two_ways_with_special_tokens_differ_for_xlm_r_only(
    folders: dict[str, Path],
) -> None:
    """The package gives XLM-R unknown tokens for its <s> and </s>; corrected, it gets its own."""
    for kind, way, unknown in (
        ("bert", "released", False),
        ("bert", "corrected", False),
        ("xlm", "released", True),
        ("xlm", "corrected", False),
    ):
        model = Recording(str(folders[kind]), revision=None, placement=Placement())
        options = ReferenceOptions(special_tokens=way)

        ReferenceCompressor(model, options, cl100k_tokens, "cl100k").judge([SENTENCES[0]], [0.5])

        own = (model.begin_id, model.end_id)
        assert model.ends == {(model.unknown_id, model.unknown_id) if unknown else own}
