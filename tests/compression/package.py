"""The package `llmlingua` from outside: cl100k's counts, and its answers by way of a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from prefold.compression.llmlingua_package import offline_data

HERE = Path(__file__).parent


@cache
def cl100k() -> Any:
    os.environ.update(offline_data())
    import tiktoken

    return tiktoken.get_encoding("cl100k_base")


def cl100k_tokens(word: str) -> int:
    return len(cl100k().encode_ordinary(word))


def run_package(model: Path, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The package's answer to each job."""
    environment = {
        **os.environ,
        **offline_data(),
        "TRANSFORMERS_VERBOSITY": "error",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.compression.package_process"],
        cwd=HERE.parents[1],
        input=json.dumps({"model": str(model), "jobs": jobs}),
        capture_output=True,
        text=True,
        env=environment,
        timeout=3600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers
