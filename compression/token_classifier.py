"""LLMLingua-2's kind of model: for each token of a window, how probably it is worth keeping.

Any Hugging Face token classifier with two labels, the second being "keep". Rows of all callers'
texts go through the model in batches of like length, never padded to the model's longest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prefold.compression.batching import padded
from prefold.compression.compressor import CompressorUnavailable
from prefold.compression.torch_models import Placement, local_folder, runtime, weights_revision

LONGEST = 512  # tokens, special ones included: what these models were trained on
Probabilities = npt.NDArray[np.float32]


class TokenClassifier:
    """A model and its tokenizer. Used by one thread at a time.

    `tokenizer` is a `tokenizers.Tokenizer`; `special` are the texts of its special tokens.
    """

    def __init__(self, model: str, *, revision: str | None, placement: Placement) -> None:
        self._runtime = runtime(placement)
        folder = local_folder(model, revision)
        self.revision = weights_revision(folder)
        self.options: Mapping[str, object] = self._runtime.options
        slow_tokenizer = _load_tokenizer(folder)
        self.tokenizer: Any = slow_tokenizer.backend_tokenizer
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.special = frozenset(
            text for text in slow_tokenizer.special_tokens_map.values() if isinstance(text, str)
        )
        self._model = self._load_model(folder)
        config = self._model.config
        self.unknown_id: int = slow_tokenizer.unk_token_id
        self.begin_id: int = slow_tokenizer.cls_token_id
        self.end_id: int = slow_tokenizer.sep_token_id
        self._pad_id: int = slow_tokenizer.pad_token_id
        # RoBERTa's kin count positions from behind the padding id.
        unused = self._pad_id + 1 if "roberta" in config.model_type else 0
        self.longest = min(LONGEST, config.max_position_embeddings - unused)

    def probabilities(
        self, rows: Sequence[Sequence[int]], *, hide_padding_ids: bool = False
    ) -> list[Probabilities]:
        """Of each row's ids, special tokens included; a row has at most `longest`.

        With `hide_padding_ids`, padding ids that are in a row are not attended to.
        """
        torch = self._runtime.torch
        found: list[Any] = [None] * len(rows)
        with torch.inference_mode():
            for batch in self._runtime.batches(list(map(len, rows))):
                ids, mask = padded([rows[row] for row in batch], self._pad_id)
                if hide_padding_ids:
                    mask = mask * (ids != self._pad_id)
                logits = self._model(
                    input_ids=torch.from_numpy(ids).to(self._runtime.device),
                    attention_mask=torch.from_numpy(mask).to(self._runtime.device),
                ).logits
                keep = torch.softmax(logits.float(), dim=-1)[:, :, 1].cpu().numpy()
                for at, row in enumerate(batch):
                    found[row] = keep[at, : len(rows[row])]
        return found

    def _load_model(self, folder: Path) -> Any:
        from transformers import AutoModelForTokenClassification

        model = AutoModelForTokenClassification.from_pretrained(
            folder,
            dtype=self._runtime.loaded_as,
            local_files_only=True,
            trust_remote_code=False,
        )
        if model.config.num_labels != 2:
            raise CompressorUnavailable(f"{folder} has {model.config.num_labels} labels, not 2")
        return self._runtime.ready(model)


def _load_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False, use_fast=True
    )
    if not tokenizer.is_fast or tokenizer.cls_token_id is None or tokenizer.unk_token_id is None:
        raise CompressorUnavailable(f"{folder} has no fast tokenizer with [CLS], [SEP] and [UNK]")
    return tokenizer
