"""`llmlingua2` with its model behind vLLM's wire format: the same model in this process keeps the
same. `vllm_check` makes the same comparison with a vLLM server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers import AutoModelForTokenClassification

from prefold.compression.catalog import CompressorChoice, VllmPlace, open_compressor
from prefold.compression.compressor import compress_checked
from prefold.compression.tokenizer_files import tokenizer_files
from tests.compression.vllm_check import passages
from tests.support.pooling_server import PoolingServer, served


class RealLogits:
    """Of a model, row by row, as a server without padding computes them."""

    def __init__(self, folder: Path) -> None:
        self._model: Any = AutoModelForTokenClassification.from_pretrained(folder).eval()

    def __call__(self, rows: Sequence[Sequence[int]]) -> list[npt.NDArray[np.float32]]:
        with torch.inference_mode():
            return [self._model(input_ids=torch.tensor([row])).logits[0].numpy() for row in rows]


@pytest.mark.parametrize("shape", ["bert", "xlm", "modernbert"])
async def test_a_model_behind_vllms_wire_keeps_the_same_spans(
    shape: str, folders: dict[str, Path]
) -> None:
    """At every rate, of every text, in windows of 512 tokens."""
    folder = folders[shape]
    server = PoolingServer(
        tokenizer=tokenizer_files(folder).tokenizer, logits=RealLogits(folder), max_model_len=514
    )
    here = open_compressor(CompressorChoice(name="llmlingua2", model=str(folder)))
    async with served(server) as url:
        place = VllmPlace(url=url, api_key="k3y")
        choice = CompressorChoice(name="llmlingua2", model=str(folder), vllm=place)
        there = await asyncio.to_thread(open_compressor, choice)
        found = await asyncio.to_thread(compress_checked, there, passages())
    assert found == compress_checked(here, passages())
    assert (
        sum(one.kept != ((0, len(each.text)),) for one, each in zip(found, passages(), strict=True))
        > 25
    )
    assert here.digest != there.digest
