"""The package `llmlingua` from outside: cl100k's counts, and its answers by way of a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from importlib.metadata import files
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def tiktoken_folder() -> str:
    """cl100k's file as llama-index-core ships it: tiktoken itself would fetch it."""
    for file in files("llama-index-core") or []:
        if file.parent.name == "tiktoken_cache":
            return str(Path(str(file.locate())).parent)
    raise FileNotFoundError("llama-index-core ships no tiktoken cache: make test-compression")


@cache
def cl100k() -> Any:
    os.environ["TIKTOKEN_CACHE_DIR"] = tiktoken_folder()
    import tiktoken

    return tiktoken.get_encoding("cl100k_base")


def cl100k_tokens(word: str) -> int:
    return len(cl100k().encode_ordinary(word))


def run_package(model: Path, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The package's answer to each job."""
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "TIKTOKEN_CACHE_DIR": tiktoken_folder(),
        "TRANSFORMERS_VERBOSITY": "error",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
    done = subprocess.run(
        [sys.executable, str(HERE / "package_process.py")],
        input=json.dumps({"model": str(model), "jobs": jobs}),
        capture_output=True,
        text=True,
        env=environment,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers
