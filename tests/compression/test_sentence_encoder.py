"""`sentences` with MiniLM's real weights: vectors, what they tell apart, edges."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prefold.compression.catalog import CompressorChoice, open_compressor
from prefold.compression.compressor import (
    Compressor,
    CompressorUnavailable,
    Passage,
    compress_checked,
)
from prefold.compression.protect import protect
from prefold.compression.sentences_encoder import SentenceEncoder, packaged_folder
from prefold.compression.torch_models import Placement
from tests.compression.tiny_models import SENTENCES

REPEATED = "Residents of the town were told that the old bridge would be closed all winter."
AGAIN = "The residents of the town were told that the old bridge would be closed all winter."
OTHERS = (
    "They have to drive around the lake now.",
    "Nobody at the town hall could say for how long.",
    "A new bridge would cost more than the town can pay.",
    "The bakery at the corner sells bread.",
)


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    return SentenceEncoder(None, revision=None, placement=Placement())


@pytest.fixture(scope="module")
def compressor() -> Compressor:
    return open_compressor(CompressorChoice(name="sentences"))


def shorten(compressor: Compressor, text: str, rate: float = 0.5) -> str:
    passage = Passage(text=text, rate=rate, protected=protect(text))
    return compress_checked(compressor, [passage])[0].text(text)


def test_vectors_are_the_models_means_at_unit_length(encoder: SentenceEncoder) -> None:
    """As its own tokenizer and one unpadded pass give them, whatever else is in the batch."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(packaged_folder())
    model: Any = AutoModel.from_pretrained(packaged_folder())
    model.eval()
    texts = [SENTENCES[0], "Why?", *OTHERS]

    vectors, read = encoder.embed(texts)

    assert read.all()
    for text, vector in zip(texts, vectors, strict=True):
        with torch.inference_mode():
            tokens = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        mean = torch.nn.functional.normalize(tokens.mean(dim=0), dim=0).numpy()
        np.testing.assert_allclose(vector, mean, atol=1e-5)


def test_long_and_unreadable_texts_have_vectors_too(encoder: SentenceEncoder) -> None:
    """More tokens than a window holds; none; a lone surrogate; a script that it was not taught."""
    vectors, read = encoder.embed(["word " * 900, "", "\ud800", "꧋꧌꧍ ꧎ꧏ"])

    assert np.linalg.norm(vectors[0]) == pytest.approx(1.0)
    assert read.tolist()[0] is True
    assert not read[3]
    assert np.isfinite(vectors).all()


def test_a_repetition_in_other_words_goes(compressor: Compressor) -> None:
    """And nothing else does while the rate has room."""
    text = " ".join([REPEATED, *OTHERS, AGAIN])

    assert shorten(compressor, text, 0.99) == " ".join([REPEATED, *OTHERS])


def test_what_stands_alone_goes_before_what_stands_for_others(compressor: Compressor) -> None:
    """Of a paragraph about the bridge, a sentence about it stays."""
    short = shorten(compressor, " ".join([REPEATED, *OTHERS]), 0.3)

    assert "bridge" in short
    assert "bakery" not in short


@pytest.mark.parametrize("rate", [0.01, 0.5, 0.99, 1.0])
def test_texts_at_the_edges_obey_the_protocol(rate: float, compressor: Compressor) -> None:
    """Nothing vanishes, and what is given alone comes out as among others."""
    edges = ["", " ", "\n\n", "word", "x" * 4000, "漢。" * 300, "\ud800. \ud800.", "👩‍👩‍👧! 😀?"]
    edges += ["[SEP] of. [CLS] at. </s> on. [UNK] by.", "\x00. " * 30, " ".join(SENTENCES)]
    passages = [Passage(text=text, rate=rate, protected=protect(text)) for text in edges]

    together = compress_checked(compressor, passages)

    for passage, result in zip(passages, together, strict=True):
        assert bool(result.text(passage.text).strip()) == bool(passage.text.strip())
        assert compress_checked(compressor, [passage]) == [result]


def test_a_model_that_is_none_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    """No weights, another pooling, a tokenizer without [CLS]: said when it is opened."""
    pooled = tmp_path / "pooled"
    pooled.mkdir()
    for file in folders["bert"].iterdir():
        (pooled / file.name).symlink_to(file)
    (pooled / "1_Pooling").mkdir()
    (pooled / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": false}')

    for model, reason in (
        (tmp_path, "no model weights"),
        (pooled, "does not pool by the mean"),
        (folders["llama"], "no fast tokenizer with"),
    ):
        with pytest.raises(CompressorUnavailable, match=reason):
            open_compressor(CompressorChoice(name="sentences", model=str(model)))
