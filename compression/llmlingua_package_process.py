"""The package `llmlingua` 0.2.2 in a process of its own: it seeds every generator of its process.

`python -m` this: one JSON object a line on standard input, one a line on standard output. First
{"model", "device", "dtype", "question"}, answered by {"versions"} or {"unavailable"}; then
{"text", "rate"}, answered by {"short"} or {"failed"}, the kind of an error. Ends when its standard
input does, also amid a text. Nothing but the rate and the text comes from a request.
"""

from __future__ import annotations

import inspect
import json
import os
import queue
import re
import resource
import signal
import sys
import tempfile
import threading
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prefold.compression.compressor import CompressorUnavailable
from prefold.compression.torch_models import Placement, runtime

# The package knows how a classifier's tokens make words by a part of its folder's name.
NAMES = {"bert": "bert-base-multilingual-cased", "xlm-roberta": "xlm-roberta-large"}
PARAGRAPHS = re.compile(r"\n[^\S\n]*\n\s*")


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to hear
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it would hold prompts
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what the package prints is no answer
    orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    try:
        with tempfile.TemporaryDirectory() as folder:  # needed to load from, not later
            package = Package(orders.get(), Path(folder))
    except (CompressorUnavailable, ImportError, OSError, ValueError) as error:
        _say(answers, {"unavailable": str(error)})
        os._exit(1)  # the other thread still reads
    names = ("llmlingua", "transformers", "torch")
    _say(answers, {"versions": [f"{name} {version(name)}" for name in names]})
    while True:
        order = orders.get()
        _say(answers, package.answer(order["text"], order["rate"]))


def _listen(orders: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin.buffer:
        orders.put(json.loads(line))
    os._exit(0)  # nobody waits for the text that is being worked on


def _say(answers: Any, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


class Package:
    """LLMLingua-2 where the model is a token classifier; LLMLingua where it is a causal model, and
    LongLLMLingua if there is a question."""

    def __init__(self, order: dict[str, Any], folder: Path) -> None:
        model = Path(order["model"])
        config = json.loads((model / "config.json").read_bytes())
        kinds = config.get("architectures") or []
        self._classifies = any("ForTokenClassification" in kind for kind in kinds)
        if not kinds:
            raise CompressorUnavailable(f"{model} does not say which architecture it is")
        self._question: str = order["question"]
        if self._question and self._classifies:
            raise CompressorUnavailable("a question needs a causal model: LongLLMLingua")
        named = _named(model, config["model_type"], folder) if self._classifies else model
        device = runtime(Placement(device=order["device"])).device
        dtype = {} if order["dtype"] == "auto" else {"torch_dtype": order["dtype"]}
        from llmlingua import PromptCompressor

        self._package: Any = PromptCompressor(
            str(named),
            device_map=device,
            use_llmlingua2=self._classifies,
            model_config={"trust_remote_code": False, "local_files_only": True, **dtype},
        )
        self._begins: str = self._package.tokenizer.bos_token or ""
        if not self._classifies:
            self._package.model = TupleCaches(self._package.model)

    def answer(self, text: str, rate: float) -> dict[str, Any]:
        try:
            short = self._short(text, rate)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - it has many, and their messages hold text
            return {"failed": type(error).__name__}
        return {"short": short.removeprefix(self._begins)}

    def _short(self, text: str, rate: float) -> str:
        self._package.context_idxs.clear()  # it would grow for ever
        if self._classifies:
            found = self._package.compress_prompt_llmlingua2([text], rate=rate)
        elif self._question:
            found = self._package.compress_prompt(
                PARAGRAPHS.split(text.strip()),
                question=self._question,
                rate=rate,
                rank_method="longllmlingua",
                condition_in_question="after_condition",
                condition_compare=True,
                dynamic_context_compression_ratio=0.3,
                reorder_context="original",  # what stays is in the source's order
                concate_question=False,
            )
        else:
            found = self._package.compress_prompt([text], rate=rate)
        return str(found["compressed_prompt"])


@dataclass(frozen=True, slots=True)
class Response:
    logits: Any
    past_key_values: list[list[Any]]


class TupleCaches:
    """A causal model whose KV caches are lists of [keys, values], as the package slices them and
    as transformers had them before 4.47."""

    def __init__(self, model: Any) -> None:
        self._model = model
        takes = inspect.signature(model.forward).parameters
        self._cache = "cache" if "cache" in takes else "past_key_values"  # new in 5.24

    def __call__(self, ids: Any, *, past_key_values: Any, **others: Any) -> Response:
        from transformers import DynamicCache

        given = None
        if past_key_values is not None:
            given = DynamicCache([(keys, values) for keys, values in past_key_values])
        response = self._model(ids, **{self._cache: given}, **others)
        layers = getattr(response, self._cache).layers
        return Response(response.logits, [[layer.keys, layer.values] for layer in layers])


def _named(model: Path, kind: str, folder: Path) -> Path:
    """The folder under a name that the package knows."""
    if any(name in str(model) for name in NAMES.values()):
        return model
    if kind not in NAMES:
        raise CompressorUnavailable(f"the package has no LLMLingua-2 for models of type {kind!r}")
    link = folder / NAMES[kind]
    link.symlink_to(model.resolve(), target_is_directory=True)
    return link


if __name__ == "__main__":
    main()
