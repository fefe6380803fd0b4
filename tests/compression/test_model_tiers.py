"""`llmlingua2` (stable) and `surprisal` on small models: protocol, edges, batches, arithmetic."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prefold.compression.catalog import CompressorChoice, open_compressor
from prefold.compression.causal_lm import CausalLM
from prefold.compression.compressor import (
    Compressor,
    CompressorUnavailable,
    Passage,
    compress_checked,
)
from prefold.compression.protect import protect
from prefold.compression.token_classifier import TokenClassifier
from prefold.compression.torch_models import Placement
from tests.compression.tiny_models import SENTENCES

TIERS = [("llmlingua2", "bert"), ("llmlingua2", "xlm"), ("llmlingua2", "modernbert")]
TIERS.append(("surprisal", "llama"))
PARAGRAPHS = [" ".join(SENTENCES[i:] + SENTENCES[:i]) for i in range(len(SENTENCES))]
EDGES = [
    "",
    " ",
    "\n\n",
    "word",
    "👩‍👩‍👧",
    "x" * 4000,
    "漢" * 3000,
    "\ud800",
    "字" * 9,
    "[NEW0] " * 9,
]
EDGES += ["the [SEP] of </s> and <unk> or [PAD] in <|endoftext|> at [CLS] on <s> by", "\x00 " * 30]


def opened(tier: tuple[str, str], folders: dict[str, Path], batch_tokens: int = 0) -> Compressor:
    choice = CompressorChoice(
        name=tier[0], model=str(folders[tier[1]]), placement=Placement(batch_tokens=batch_tokens)
    )
    return open_compressor(choice)


def passages(texts: list[str], rate: float = 0.5) -> list[Passage]:
    return [Passage(text=text, rate=rate, protected=protect(text)) for text in texts]


def outputs(compressor: Compressor, texts: list[str], rate: float = 0.5) -> list[str]:
    results = compress_checked(compressor, passages(texts, rate))
    return [result.text(text) for result, text in zip(results, texts, strict=True)]


@pytest.mark.parametrize("tier", TIERS)
def test_texts_come_out_alike_alone_and_in_a_batch(
    tier: tuple[str, str], folders: dict[str, Path]
) -> None:
    """Whatever else is in the batch, and however large it may be."""
    compressor = opened(tier, folders)

    together = outputs(compressor, PARAGRAPHS)

    assert together == [outputs(compressor, [text])[0] for text in PARAGRAPHS]
    assert together == outputs(opened(tier, folders, batch_tokens=600), PARAGRAPHS)


@pytest.mark.parametrize("tier", TIERS)
def test_a_paragraph_comes_out_alike_wherever_it_stands(
    tier: tuple[str, str], folders: dict[str, Path]
) -> None:
    """In any document, in any order."""
    compressor = opened(tier, folders)
    alone = outputs(compressor, PARAGRAPHS)

    for order in (range(9), reversed(range(9)), (3, 1, 4)):
        places = list(order)
        document = "\n\n".join(PARAGRAPHS[place] for place in places)

        assert outputs(compressor, [document]) == ["\n\n".join(alone[place] for place in places)]


@pytest.mark.parametrize("tier", TIERS)
def test_texts_at_the_edges_obey_the_protocol(
    tier: tuple[str, str], folders: dict[str, Path]
) -> None:
    """Empty, one word, one endless word, lone surrogates, what models take for their own tokens."""
    for rate in (0.01, 0.5, 0.99, 1.0):
        for text, short in zip(EDGES, outputs(opened(tier, folders), EDGES, rate), strict=True):
            assert bool(short.strip()) == bool(text.strip())


@pytest.mark.parametrize("tier", TIERS)
def test_digits_and_names_survive_at_any_rate(
    tier: tuple[str, str], folders: dict[str, Path]
) -> None:
    """As they are protected, in every script."""
    text = "\n\n".join(PARAGRAPHS[:2])

    [short] = outputs(opened(tier, folders), [text], 0.1)

    for needed in ("1987", "4.2 million", "3.5%", "$1,000", "ops@example.org", "main_test.py"):
        assert needed in short


def test_probabilities_are_those_of_the_model(folders: dict[str, Path]) -> None:
    """Rows of any length in one call, as the model alone gives them, unpadded."""
    import torch
    from transformers import AutoModelForTokenClassification

    classifier = TokenClassifier(str(folders["xlm"]), revision=None, placement=Placement())
    model: Any = AutoModelForTokenClassification.from_pretrained(folders["xlm"])
    model.eval()
    rows = [[0, *range(5, 5 + length), 2] for length in (1, 7, 180, 3, 175, 40)]

    found = classifier.probabilities(rows)

    for row, values in zip(rows, found, strict=True):
        with torch.inference_mode():
            alone = torch.softmax(model(torch.tensor([row])).logits, -1)[0, :, 1].numpy()
        np.testing.assert_allclose(values, alone, atol=1e-5)


def test_surprisals_are_those_of_the_model(folders: dict[str, Path]) -> None:
    """Minus the logarithm of what the model gave the token that came."""
    import torch
    from transformers import AutoModelForCausalLM

    lm = CausalLM(str(folders["llama"]), revision=None, placement=Placement())
    model: Any = AutoModelForCausalLM.from_pretrained(folders["llama"])
    model.eval()
    rows = [[0, *range(5, 5 + length)] for length in (1, 300, 40)]

    found = lm.surprisals(rows)

    for row, values in zip(rows, found, strict=True):
        with torch.inference_mode():
            logits = torch.log_softmax(model(torch.tensor([row])).logits[0], -1)
        wanted = [-float(logits[at, after]) for at, after in enumerate(row[1:])]
        np.testing.assert_allclose(values, wanted, atol=1e-4)
    assert all(math.isfinite(value) for value in found[1])


def test_weights_and_precision_name_the_compressor(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    """Other weights or another precision may give other bytes: another digest."""
    from tests.compression.tiny_models import bert_folder

    def digest(folder: Path, dtype: str = "float32") -> str:
        choice = CompressorChoice(
            name="llmlingua2", model=str(folder), placement=Placement(dtype=dtype)
        )
        return open_compressor(choice).digest

    other = bert_folder(tmp_path, seed=1)

    assert digest(folders["bert"]) == digest(folders["bert"])
    assert len({digest(folders["bert"]), digest(other), digest(other, "bfloat16")}) == 3


@pytest.mark.parametrize(
    ("placement", "said"),
    [
        (Placement(device="cuda"), "cuda"),
        (Placement(dtype="int3"), "int3"),
    ],
)
def test_what_a_machine_does_not_have_is_said(
    placement: Placement, said: str, folders: dict[str, Path]
) -> None:
    """Before a model is loaded."""
    import torch

    if placement.device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    choice = CompressorChoice(name="llmlingua2", model=str(folders["bert"]), placement=placement)

    with pytest.raises(CompressorUnavailable, match=said):
        open_compressor(choice)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    """By name, before anything is loaded."""
    choice = CompressorChoice(name="llmlingua2", model=str(tmp_path))

    with pytest.raises(CompressorUnavailable, match="no model weights"):
        open_compressor(choice)


@pytest.mark.gpu
@pytest.mark.parametrize("tier", TIERS)
def test_a_gpu_keeps_to_the_protocol(tier: tuple[str, str], folders: dict[str, Path]) -> None:
    """In half precision, for all texts at once."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    compressor = opened(tier, folders)

    assert all(outputs(compressor, PARAGRAPHS))
    outputs(compressor, EDGES)
