"""The models that answer: one in this process, or one that is served.

Always the likeliest next token, so that answers differ by their prompts alone.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from prefold.compression.batching import micro_batches
from prefold.compression.torch_models import Placement, local_folder, runtime
from prefold.proxy.tokens.tokenizer import load_tokenizer
from tests.benchmark.rag.corpus import Question, chat

BATCH_TOKENS = 8192  # prompts that are answered together, padding included
AT_ONCE = 4  # requests to a served model
PATIENCE_S = 600.0


class Answering(Protocol):
    def answers(self, questions: Sequence[Question], most_tokens: int) -> list[str]:
        """One for each question, of at most so many tokens."""


class LocalModel:
    """A causal model of Hugging Face's kind, a folder or hub id, or a GGUF file. Prompts are
    rendered and encoded as the proxy does it."""

    def __init__(self, model: str) -> None:
        hf: Any = import_module("transformers")  # types that change from release to release
        loaded = load_tokenizer(model, try_fast=False)
        if loaded.template is None or loaded.eos_token is None:
            raise ValueError(f"{model} has no chat template, or no end of a turn")
        self._template, self._tokenizer = loaded.template, loaded.tokenizer
        path, where = Path(model).expanduser(), {}
        if path.suffix == ".gguf":
            path, where = path.parent, {"gguf_file": path.name}
        else:
            path = local_folder(model, None)
        self._decoder = hf.AutoTokenizer.from_pretrained(path, local_files_only=True, **where)
        self._end = self._decoder.convert_tokens_to_ids(loaded.eos_token)
        self._runtime = runtime(Placement())
        self._model = (
            hf.AutoModelForCausalLM.from_pretrained(
                path,
                dtype=getattr(self._runtime.torch, self._runtime.dtype),
                local_files_only=True,
                trust_remote_code=False,
                **where,
            )
            .eval()
            .to(self._runtime.device)
        )

    def answers(self, questions: Sequence[Question], most_tokens: int) -> list[str]:
        prompts = [self._template.render(chat(one), None, {}) for one in questions]
        rows = [ids.tolist() for ids in self._tokenizer.encode_many(prompts)]
        found = [""] * len(rows)
        for batch in micro_batches(list(map(len, rows)), BATCH_TOKENS):
            texts = self._batch([rows[row] for row in batch], most_tokens)
            for row, text in zip(batch, texts, strict=True):
                found[row] = text
        return found

    def _batch(self, rows: list[list[int]], most_tokens: int) -> list[str]:
        torch, end = self._runtime.torch, self._end
        longest = max(map(len, rows))
        ids = torch.tensor([[end] * (longest - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
        with torch.inference_mode():
            out = self._model.generate(
                input_ids=ids.to(self._runtime.device),
                attention_mask=mask.to(self._runtime.device),
                max_new_tokens=most_tokens,
                do_sample=False,
                eos_token_id=end,
                pad_token_id=end,
            )
        texts: list[str] = self._decoder.batch_decode(out[:, longest:], skip_special_tokens=True)
        return texts


class ServedModel:
    """Any server of OpenAI's chat completions; `url` without `/v1`."""

    def __init__(self, url: str, model: str) -> None:
        self._url = f"{url.rstrip('/')}/v1/chat/completions"
        self._model = model

    def answers(self, questions: Sequence[Question], most_tokens: int) -> list[str]:
        bodies = [
            {
                "model": self._model,
                "messages": chat(one),
                "max_tokens": most_tokens,
                "temperature": 0,
            }
            for one in questions
        ]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(self._answer, bodies))

    def _answer(self, body: dict[str, Any]) -> str:
        request = urllib.request.Request(
            self._url, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            told = json.load(answer)
        return told["choices"][0]["message"]["content"] or ""
