"""The mocker of `ai-dynamo`: vLLM's scheduler, prefix cache and KV events without a model.

It comes from PyPI into an environment of its own in the cache folder (310 MB), never into ours.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from prefold.backends import parent_death
from prefold.backends.embedded import cache_folder
from tests.support.tiny_tokenizer import tiny_bpe, write_folder

VERSION = "1.6.1"
# Without their dependencies: one of them, `aisimulate`, is but a placeholder on PyPI.
PACKAGES = (f"ai-dynamo=={VERSION}", f"ai-dynamo-runtime=={VERSION}")
NEEDED = ("msgspec", "packaging", "pydantic>=2", "pyyaml", "typing-extensions", "uvloop")
INSTALLED = ".installed"
MODEL = "mock"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 271,
    "max_position_embeddings": 8192,
    "eos_token_id": 270,
}


class MockerUnavailable(Exception):
    """Says why it is not here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mocker:
    url: str
    events: str
    replay: str


def install() -> Path:
    """The Python of its environment, which is made at the first call. Raises MockerUnavailable."""
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    home = cache_folder() / f"mocker-{VERSION}-{version}"
    python = home / "bin" / "python"
    if not (home / INSTALLED).exists():
        shutil.rmtree(home, ignore_errors=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        _run([sys.executable, "-m", "venv", str(home)])
        _run([*pip, "--only-binary=:all:", "--no-deps", *PACKAGES])
        _run([*pip, "--only-binary=:all:", *NEEDED])
        (home / INSTALLED).touch()
    return python


@contextmanager
def mocker(
    python: Path,
    folder: Path,
    *,
    block_tokens: int,
    blocks: int,
    ports: Sequence[int] | None = None,
    kind: str = "vllm",
    ranks: int = 1,
) -> Iterator[Mocker]:
    """One engine on the loopback, ready to answer. Its files go to `folder`, which is its own.
    `ports`: of HTTP, events and replays; data-parallel ranks add theirs to the last two. `kind`:
    the scheduler and cache of vllm, sglang or trtllm."""
    model = write_folder(folder / "model", tiny_bpe())
    (model / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    http, events, replay = ports or free_ports(3)
    space = f"ns{http}"
    environment = {
        **os.environ,
        "DYN_FILE_KV": str(folder / "discovery"),
        "DYN_NAMESPACE": space,
        "HF_HUB_OFFLINE": "1",
        "DYN_TCP_RPC_HOST": "127.0.0.1",
        "DYN_TCP_RESPONSE_STREAM_HOST": "127.0.0.1",
        "DYN_EVENT_PLANE_HOST": "127.0.0.1",
    }
    planes = ["--discovery-backend", "file", "--request-plane", "tcp", "--event-plane", "zmq"]
    worker = [
        *(str(python), "-m", "dynamo.mocker", "--model-path", str(model), "--model-name", MODEL),
        *("--endpoint", f"dyn://{space}.backend.generate", "--speedup-ratio", "100"),
        *("--block-size", str(block_tokens), "--num-gpu-blocks-override", str(blocks)),
        *("--zmq-kv-events-ports", str(events), "--zmq-replay-ports", str(replay)),
        *("--engine-type", kind, "--data-parallel-size", str(ranks)),
        *planes,
    ]
    frontend = [
        *(str(python), "-m", "dynamo.frontend", "--http-port", str(http)),
        *("--http-host", "127.0.0.1", "--router-mode", "round-robin"),
        *planes,
    ]
    with ExitStack() as stack:
        log = stack.enter_context((folder / "mocker.log").open("ab"))
        for argv in (worker, frontend):
            process = subprocess.Popen(
                parent_death.command(argv), env=environment, stdout=log, stderr=log
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        _wait_ready(f"http://127.0.0.1:{http}/v1/models")
        yield Mocker(
            url=f"http://127.0.0.1:{http}",
            events=f"tcp://127.0.0.1:{events}",
            replay=f"tcp://127.0.0.1:{replay}",
        )


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def free_runs(count: int, length: int) -> list[int]:
    """Where `length` ports in a row are free, so many times; the runs have none in common."""
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < count:
            first = stack.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            base = first.getsockname()[1]
            try:
                for port in range(base + 1, base + length):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(base)
    return found


def _wait_ready(url: str) -> None:
    """Until the model is listed. Raises MockerUnavailable after a minute."""
    for _ in range(600):
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if json.load(answer)["data"]:
                    return
        except OSError:
            pass
        time.sleep(0.1)
    raise MockerUnavailable(f"it did not become ready at {url}")


def _run(argv: list[str]) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=600)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MockerUnavailable(f"{argv[0]}: {error}") from error
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:]
        raise MockerUnavailable(f"{' '.join(argv)}: {''.join(said)}")
