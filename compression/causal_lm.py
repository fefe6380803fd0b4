"""A causal language model that says how surprising each token is after those before it.

Any Hugging Face causal model, or one in a GGUF file. Windows of all callers' texts go through the
model in batches, once: no cache is sliced, and nothing is generated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prefold.compression.batching import padded
from prefold.compression.compressor import CompressorUnavailable
from prefold.compression.torch_models import Placement, local_folder, runtime, weights_revision
from prefold.compression.words import Floats

LONGEST = 512  # tokens of a window
ROWS_OF_LOGITS = 256  # tokens whose logits over the vocabulary are in memory at once


class CausalLM:
    """A model and its tokenizer. Used by one thread at a time.

    `tokenizer_json` stands for a tokenizer that is not in the model's folder, as with a GGUF file.
    """

    def __init__(
        self,
        model: str,
        *,
        revision: str | None,
        placement: Placement,
        tokenizer_json: str | None = None,
    ) -> None:
        from tokenizers import Tokenizer

        self._runtime = runtime(placement)
        self.options = self._runtime.options
        path = Path(model).expanduser()
        if path.suffix == ".gguf":
            with path.open("rb") as file:
                self.revision = hashlib.file_digest(file, "sha256").hexdigest()[:16]
            self._model = self._load(path.parent, gguf_file=path.name)
        else:
            path = local_folder(model, revision)
            self.revision = weights_revision(path)
            self._model = self._load(path)
            file_of_tokenizer = path / "tokenizer.json"
            if tokenizer_json is None and file_of_tokenizer.is_file():
                tokenizer_json = file_of_tokenizer.read_text(encoding="utf-8")
        if tokenizer_json is None:
            raise CompressorUnavailable(f"{model} comes without a tokenizer.json")
        self.tokenizer: Any = Tokenizer.from_str(tokenizer_json)
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.tokenizer.encode_special_tokens = True
        config = self._model.config
        starts = config.bos_token_id if config.bos_token_id is not None else config.eos_token_id
        self.begin_id = int(starts[0] if isinstance(starts, list) else starts or 0)
        self.longest = min(LONGEST, config.max_position_embeddings)

    def surprisals(self, rows: Sequence[Sequence[int]]) -> list[Floats]:
        """In nats, of each row's ids but the first; a row has at least two, at most `longest`."""
        torch = self._runtime.torch
        found: list[Any] = [None] * len(rows)
        with torch.inference_mode():
            for batch in self._runtime.batches(list(map(len, rows))):
                ids, mask = padded([rows[row] for row in batch], self.begin_id)
                given = torch.from_numpy(ids).to(self._runtime.device)
                attended = torch.from_numpy(mask).to(self._runtime.device)
                hidden = self._model.model(
                    input_ids=given, attention_mask=attended, use_cache=False
                ).last_hidden_state
                values = self._of_next(hidden[:, :-1], given[:, 1:])
                for at, row in enumerate(batch):
                    found[row] = values[at, : len(rows[row]) - 1]
        return found

    def _of_next(self, hidden: Any, ids: Any) -> Floats:
        """Logits of a whole batch would be gigabytes: some rows of the vocabulary at a time."""
        torch = self._runtime.torch
        flat, wanted = hidden.reshape(-1, hidden.shape[-1]), ids.reshape(-1)
        parts = []
        for start in range(0, len(flat), ROWS_OF_LOGITS):
            rows = slice(start, start + ROWS_OF_LOGITS)
            logits = self._model.lm_head(flat[rows]).float()
            parts.append(torch.nn.functional.cross_entropy(logits, wanted[rows], reduction="none"))
        values = torch.cat(parts).reshape(ids.shape).cpu().numpy()
        return np.asarray(values, dtype=np.float64)

    def _load(self, folder: Path, gguf_file: str | None = None) -> Any:
        from transformers import AutoModelForCausalLM

        file = {"gguf_file": gguf_file} if gguf_file else {}
        try:
            model: Any = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=self._runtime.loaded_as,
                local_files_only=True,
                trust_remote_code=False,
                **file,
            )
        except ImportError as error:  # gguf
            raise CompressorUnavailable(f"a package is missing: {error.name or 'gguf'}") from None
        return self._runtime.ready(model)
