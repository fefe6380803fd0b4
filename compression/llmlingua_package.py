"""`llmlingua`: the package as published, for comparison and for the papers' own behaviour.

It runs in a process of its own (llmlingua_package_process.py), offline, and gives a text back; what
is kept are the spans of the source that hold that text. What it keeps depends on a word's place in
its document, and under LongLLMLingua on the question, so it is not for shared prefixes.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from prefold.compression import llmlingua_package_process
from prefold.compression.compressor import (
    Compressed,
    CompressorFault,
    CompressorUnavailable,
    Passage,
    digest_of,
    whole,
)
from prefold.compression.llmlingua_package_spans import kept_spans
from prefold.compression.torch_models import Placement, local_folder, weights_revision

CODE = "1"  # to be raised with every change of outputs


class PackageCompressor:
    """A token classifier makes it LLMLingua-2, a causal model LLMLingua, with a question
    LongLLMLingua, to which paragraphs are contexts.

    Used by one thread at a time. Its process ends with it, and is started anew where it has ended.
    Raises CompressorUnavailable where the package or the model is not here.
    """

    name = "llmlingua"

    def __init__(
        self, model: str, *, revision: str | None, placement: Placement, question: str = ""
    ) -> None:
        if find_spec("llmlingua") is None:
            raise CompressorUnavailable(
                "llmlingua needs its package: pip install 'prefold[compression-llmlingua]'"
            )
        if placement.dtype == "int8":
            raise CompressorUnavailable("the package llmlingua knows no int8")
        folder = local_folder(model, revision).absolute()
        self.revision = f"{CODE}/{weights_revision(folder)}"
        self._order = {
            "model": str(folder),
            "device": placement.device,
            "dtype": placement.dtype,
            "question": question,
        }
        self._process: _Process | None = _Process(self._order)
        options = {
            "versions": self._process.versions,
            "device": placement.device,
            "dtype": placement.dtype,
            "question": question,
        }
        self.digest = digest_of(self.name, self.revision, options)

    @property
    def pid(self) -> int | None:
        """Of the package's process; None while there is none."""
        return self._process.pid if self._process else None

    def compress(self, passages: Sequence[Passage]) -> list[Compressed]:
        """Raises CompressorFault where the package fails, or gives what is not in the text."""
        return [self._compressed(passage) for passage in passages]

    def _compressed(self, passage: Passage) -> Compressed:
        if passage.rate >= 1 or not passage.text.strip():
            return whole(passage.text)
        if self._process is None:
            self._process = _Process(self._order)
        try:
            answer = self._process.ask({"text": passage.text, "rate": passage.rate})
        except OSError:
            self._process = None
            raise CompressorFault("the package's process has ended") from None
        if "short" not in answer:
            raise CompressorFault(f"the package failed: {answer.get('failed')}")
        return Compressed(kept=kept_spans(passage.text, answer["short"], passage.protected))


class _Process:
    """Raises CompressorUnavailable if it does not come up; killed when nobody holds it any more."""

    def __init__(self, order: dict[str, str]) -> None:
        modules = os.pathsep.join(filter(None, sys.path))
        self._running = subprocess.Popen(
            # -P: what lies in the working directory is not imported.
            [sys.executable, "-P", "-m", llmlingua_package_process.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **offline_data(), "PYTHONPATH": modules},
        )
        weakref.finalize(self, _end, self._running)
        try:
            first = self.ask(order)
        except OSError:
            raise CompressorUnavailable("the package's process ended as it began") from None
        if "versions" not in first:
            raise CompressorUnavailable(f"llmlingua cannot be opened: {first.get('unavailable')}")
        self.versions = first["versions"]

    @property
    def pid(self) -> int:
        return self._running.pid

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        """Raises OSError if it has ended."""
        orders, answers = self._running.stdin, self._running.stdout
        if orders is None or answers is None:
            raise BrokenPipeError
        orders.write(json.dumps(order).encode() + b"\n")
        orders.flush()
        line = answers.readline()
        if not line:
            raise BrokenPipeError
        answer: dict[str, Any] = json.loads(line)
        return answer


def _end(running: subprocess.Popen[bytes]) -> None:
    running.kill()
    for pipe in (running.stdin, running.stdout):
        with contextlib.suppress(OSError):  # what was not sent is lost with it
            if pipe is not None:
                pipe.close()
    running.wait()


def offline_data() -> dict[str, str]:
    """The environment in which the package fetches nothing: cl100k and sentence rules come from
    llama-index-core's wheel where that is installed, else from where the environment says."""
    found = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    for name, folder in (("TIKTOKEN_CACHE_DIR", "tiktoken_cache"), ("NLTK_DATA", "nltk_cache")):
        if name not in os.environ and (path := _shipped(folder)) is not None:
            found[name] = str(path)
    return found


def _shipped(folder: str) -> Path | None:
    try:
        shipped = files("llama-index-core") or []
    except PackageNotFoundError:
        return None
    for file in shipped:
        if folder in file.parts:
            path = Path(str(file.locate()))
            return path.parents[len(file.parts) - 2 - file.parts.index(folder)]
    return None
