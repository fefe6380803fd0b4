"""Real aiperf as a client of its own: its environment, its tokenizer, its run, what it exported."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prefold.proxy.tokens.gguf_tokenizer import convert
from tests.benchmark.wire.install import virtual_environment

VERSION = "0.13.0"
TOKENIZER = "prefold/embedded"
REVISION = "0" * 40


@dataclass(frozen=True, slots=True)
class Told:
    """aiperf's figures of one request, by its own names, in ms and tokens; and of the run."""

    requests: Mapping[str, Mapping[str, float]]
    """By X-Request-ID."""
    run: Mapping[str, Mapping[str, float]]


def run(url: str, model: str, gguf: Path, folder: Path, requests: int) -> Told:
    """Raises Unavailable if it cannot be installed, and subprocess.CalledProcessError."""
    python = virtual_environment("aiperf", VERSION)
    hub = _hub(gguf, folder / "hub")
    out = folder / "artifacts"
    # The loaders of traces run with the hub switched off, where a folder's path is refused, so the
    # tokenizer lies where a download would have put it.
    env = os.environ | {"HF_HOME": str(hub), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    subprocess.run(
        [
            str(python.with_name("aiperf")), "profile",
            "--model", model, "--tokenizer", TOKENIZER, "--url", url,
            "--endpoint-type", "chat", "--streaming",
            "--concurrency", "2", "--request-count", str(requests),
            "--num-dataset-entries", str(requests), "--random-seed", "1",
            "--synthetic-input-tokens-mean", "200", "--output-tokens-mean", "24",
            "--use-server-token-count", "--ui", "none", "--output-artifact-dir", str(out),
        ],
        env=env, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=900,
    )  # fmt: skip
    return Told(_requests(out / "profile_export.jsonl"), _run(out / "profile_export_aiperf.json"))


def _hub(gguf: Path, home: Path) -> Path:
    entry = home / "hub" / f"models--{TOKENIZER.replace('/', '--')}"
    snapshot = entry / "snapshots" / REVISION
    snapshot.mkdir(parents=True)
    convert(gguf, snapshot)
    (entry / "refs").mkdir()
    (entry / "refs" / "main").write_text(REVISION)
    return home


def _requests(file: Path) -> dict[str, dict[str, float]]:
    made = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        told = json.loads(line)
        if told.get("error") or told["metadata"].get("benchmark_phase") != "profiling":
            continue
        made[told["metadata"]["x_request_id"]] = {
            name: metric["value"]
            for name, metric in told["metrics"].items()
            if isinstance(metric["value"], int | float)
        }
    return made


def _run(file: Path) -> dict[str, dict[str, float]]:
    told = json.loads(file.read_text(encoding="utf-8"))
    return {
        name: {key: value for key, value in metric.items() if isinstance(value, int | float)}
        for name, metric in told.items()
        if isinstance(metric, dict) and "unit" in metric
    }
