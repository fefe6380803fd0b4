"""Precision int8: its arithmetic, what it leaves alone, and that nobody's neighbours matter."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prefold.compression.catalog import CompressorChoice, open_compressor
from prefold.compression.causal_lm import CausalLM
from prefold.compression.compressor import (
    Compressor,
    CompressorUnavailable,
    Passage,
    compress_checked,
)
from prefold.compression.int8_linear import in_int8, is_fast_here
from prefold.compression.protect import protect
from prefold.compression.sentences_encoder import SentenceEncoder
from prefold.compression.token_classifier import TokenClassifier
from prefold.compression.torch_models import Placement
from tests.compression.decisions import share_alike
from tests.compression.tiny_models import SENTENCES

pytestmark = pytest.mark.skipif(
    not is_fast_here(torch), reason="this CPU has no VNNI, which dtype int8 needs"
)

INT8 = Placement(dtype="int8")
TIERS = [("llmlingua2", "bert"), ("llmlingua2", "xlm"), ("llmlingua2", "modernbert")]
TIERS.append(("surprisal", "llama"))
PARAGRAPHS = [" ".join(SENTENCES[i:] + SENTENCES[:i]) for i in range(len(SENTENCES))]


def opened(tier: tuple[str, str], folders: dict[str, Path], placement: Placement) -> Compressor:
    choice = CompressorChoice(name=tier[0], model=str(folders[tier[1]]), placement=placement)
    return open_compressor(choice)


def passages(texts: list[str]) -> list[Passage]:
    return [Passage(text=text, rate=0.5, protected=protect(text)) for text in texts]


def random_layer(inputs: int, outputs: int, *, bias: bool, seed: int) -> Any:
    torch.manual_seed(seed)
    return torch.nn.Linear(inputs, outputs, bias=bias)


@settings(max_examples=40)
@given(
    rows=st.integers(1, 70),
    inputs=st.integers(16, 200),
    outputs=st.integers(16, 130),
    bias=st.booleans(),
    seed=st.integers(0, 999),
)
def test_a_layer_is_exact_in_integers(
    rows: int, inputs: int, outputs: int, bias: bool, seed: int
) -> None:
    """As numpy computes it with 64 bits, in every shape, also for a token of zeros."""
    layer = random_layer(inputs, outputs, bias=bias, seed=seed)
    weight = layer.weight.detach().numpy()
    given_rows = torch.randn(1, rows, inputs)
    given_rows[0, 0] = 0.0

    in_int8(torch, layer)
    with torch.inference_mode():
        found = layer(given_rows)[0].numpy()

    scales = np.maximum(np.abs(weight).max(axis=1), np.float32(1e-12)) / np.float32(127)
    values = given_rows[0].numpy()
    most = np.maximum(np.abs(values).max(axis=1, keepdims=True), np.float32(1e-12))
    codes = np.rint(values * (np.float32(127) / most)).astype(np.int64)
    sums = codes @ np.rint(weight / scales[:, None]).astype(np.int64).T
    wanted = sums.astype(np.float64) * (most / 127) * scales
    if bias:
        wanted = wanted + layer.bias.detach().numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert np.array_equal(found[0], layer.bias.detach().numpy() if bias else np.zeros(outputs))


def test_a_token_is_read_alike_whatever_stands_beside_it() -> None:
    """To the last bit, even beside one that is a thousand times as large."""
    layer = random_layer(96, 64, bias=True, seed=1)
    in_int8(torch, layer)
    row, large = torch.randn(1, 96), 1000 * torch.randn(40, 96)

    with torch.inference_mode():
        assert torch.equal(layer(row)[0], layer(torch.cat([large, row]))[-1])


def test_the_encoders_layers_are_integers_and_its_head_is_not(folders: dict[str, Path]) -> None:
    """A head of two labels costs nothing and decides everything."""
    classifier = TokenClassifier(str(folders["bert"]), revision=None, placement=INT8)
    model = classifier._model

    layers = [one for one in model.base_model.modules() if isinstance(one, torch.nn.Linear)]
    assert layers
    assert {layer.weight.dtype for layer in layers} == {torch.int8}
    assert model.classifier.weight.dtype == torch.float32


def test_tiny_layers_stay_as_they_are() -> None:
    """They gain nothing, and torch multiplies integers wrongly where there is one input."""
    model = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.Linear(64, 64))
    model.append(torch.nn.Linear(64, 2))

    in_int8(torch, model)

    dtypes = [layer.weight.dtype for layer in model]
    assert dtypes == [torch.float32, torch.int8, torch.float32]


@pytest.mark.parametrize("kind", ["bert", "xlm", "modernbert"])
def test_probabilities_do_not_depend_on_the_batch(kind: str, folders: dict[str, Path]) -> None:
    """Rows of all lengths in one call give what each gives alone, and not by hundredths less."""
    classifier = TokenClassifier(str(folders[kind]), revision=None, placement=INT8)
    lengths = (1, 7, 180, 180, 3, 175, 40, 7, 178)
    rows = [[0, *range(5 + at, 5 + at + length), 2] for at, length in enumerate(lengths)]

    together = classifier.probabilities(rows)

    for row, values in zip(rows, together, strict=True):
        np.testing.assert_allclose(values, classifier.probabilities([row])[0], atol=1e-6)


def test_surprisals_do_not_depend_on_the_batch(folders: dict[str, Path]) -> None:
    """Nor those of a causal model, whose large head is in integers too, its embeddings not."""
    lm = CausalLM(str(folders["llama"]), revision=None, placement=INT8)
    assert lm._model.lm_head.weight.dtype == torch.int8
    assert lm._model.model.embed_tokens.weight.dtype == torch.float32
    rows = [[0, *range(5, 5 + length)] for length in (1, 300, 40, 290, 40)]

    for row, values in zip(rows, lm.surprisals(rows), strict=True):
        np.testing.assert_allclose(values, lm.surprisals([row])[0], atol=1e-5)


@pytest.mark.parametrize("tier", TIERS)
def test_texts_come_out_alike_alone_and_in_a_batch(
    tier: tuple[str, str], folders: dict[str, Path]
) -> None:
    """The rule of every compressor, in any size of batch; and nearly as float32 decides."""
    compressor = opened(tier, folders, INT8)
    together = compress_checked(compressor, passages(PARAGRAPHS))

    small = opened(tier, folders, Placement(dtype="int8", batch_tokens=100))
    assert together == [compressor.compress([one])[0] for one in passages(PARAGRAPHS)]
    assert together == compress_checked(small, passages(PARAGRAPHS))
    exact = opened(tier, folders, Placement(dtype="float32"))
    assert share_alike(PARAGRAPHS, together, exact.compress(passages(PARAGRAPHS))) > 0.95


def test_real_vectors_stay_what_they_were() -> None:
    """MiniLM's weights, not random ones: a cosine of 0.99 and more with float32's vectors."""
    vectors = [
        SentenceEncoder(None, revision=None, placement=Placement(dtype=dtype)).embed(SENTENCES)[0]
        for dtype in ("float32", "int8")
    ]

    cosines = (vectors[0] * vectors[1]).sum(axis=1)
    assert 0.99 < cosines.min() < cosines.max() < 1.0 - 1e-7


def test_precision_is_in_the_digest(folders: dict[str, Path]) -> None:
    """What int8 kept is never served for float32."""
    digests = {opened(TIERS[0], folders, Placement(dtype=d)).digest for d in ("float32", "int8")}

    assert len(digests) == 2


def test_the_reference_stays_in_float32(folders: dict[str, Path]) -> None:
    """It is for comparison with the package, so another precision is refused."""
    choice = CompressorChoice(
        name="llmlingua2", model=str(folders["bert"]), mode="reference", placement=INT8
    )

    with pytest.raises(ValueError, match="float32"):
        open_compressor(choice)


def test_the_package_has_no_int8(folders: dict[str, Path]) -> None:
    """Said before its process is started."""
    choice = CompressorChoice(name="llmlingua", model=str(folders["bert"]), placement=INT8)

    with pytest.raises(CompressorUnavailable, match="int8"):
        open_compressor(choice)


def test_int8_is_refused_where_it_would_crawl(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without VNNI torch multiplies integers one by one; and GPUs are not for this either."""
    monkeypatch.setattr("torch.cpu._is_vnni_supported", lambda: False)

    for device in ("cpu", "meta"):
        with pytest.raises(CompressorUnavailable, match="VNNI"):
            opened(TIERS[0], folders, Placement(dtype="int8", device=device))
