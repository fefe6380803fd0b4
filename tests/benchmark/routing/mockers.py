"""The mocker's engines, each behind the face of vLLM, as a fleet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from prefold.backends import parent_death
from prefold.proxy.tokens.gguf_tokenizer import convert
from tests.benchmark.routing.fleets import (
    MODEL,
    READY_S,
    Engine,
    Fleet,
    FleetError,
    quiet_ports,
    warm_up,
)
from tests.benchmark.routing.vllm_face import BLOCK_TOKENS, Behind
from tests.support.mocker import CONFIG


@contextmanager
def mockers(
    python: Path, gguf: Path, *, engines: int, tokens: int, speedup: float, folder: Path
) -> Iterator[Fleet]:
    """Simulated engines behind the face of vLLM, each with a KV cache of `tokens`. `python` is that
    of the mocker's environment. Raises FleetError."""
    model = folder / "model"
    convert(gguf, model)
    config = {**CONFIG, "vocab_size": 49152, "max_position_embeddings": 131072}
    config |= {"bos_token_id": 1, "eos_token_id": 2}
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    blocks = tokens // BLOCK_TOKENS
    with ExitStack() as stack:
        log = stack.enter_context((folder / "mockers.log").open("ab"))
        found = quiet_ports(3 * engines)
        ports = [found[at : at + 3] for at in range(0, len(found), 3)]
        for number, own in enumerate(ports):
            env = _environment(own[0], folder / f"discovery-{number}")
            for argv in _pair(python, model, own, blocks, speedup):
                stack.enter_context(_running(argv, env, log.fileno()))
        behind = [Behind(url=f"http://127.0.0.1:{own[0]}", blocks=blocks) for own in ports]
        for each in behind:
            _wait_listed(each.url, folder / "mockers.log")
        fronts = stack.enter_context(_face(gguf, model, behind))
        fleet = Fleet(
            engines=[
                Engine(
                    url=front,
                    counters=f"{each.url}/metrics",
                    events=f"tcp://127.0.0.1:{own[1]}",
                    replay=f"tcp://127.0.0.1:{own[2]}",
                )
                for front, each, own in zip(fronts, behind, ports, strict=True)
            ],
            prompt_counter="dynamo_frontend_input_sequence_tokens_sum",
            cached_counter="dynamo_frontend_cached_tokens_sum",
            prompt_counter_has_cached=True,
        )
        warm_up(fleet)
        yield fleet


def _environment(port: int, discovery: Path) -> dict[str, str]:
    return {
        **os.environ,
        "DYN_FILE_KV": str(discovery),
        "DYN_NAMESPACE": f"ns{port}",
        "DYN_LOG": "error",
        "HF_HUB_OFFLINE": "1",
        "DYN_TCP_RPC_HOST": "127.0.0.1",
        "DYN_TCP_RESPONSE_STREAM_HOST": "127.0.0.1",
        "DYN_EVENT_PLANE_HOST": "127.0.0.1",
    }


def _pair(
    python: Path, model: Path, ports: Sequence[int], blocks: int, speedup: float
) -> list[list[str]]:
    """The engine and its HTTP side."""
    http, events, replay = map(str, ports)
    planes = ["--discovery-backend", "file", "--request-plane", "tcp", "--event-plane", "zmq"]
    worker = [
        *(str(python), "-m", "dynamo.mocker", "--model-path", str(model), "--model-name", MODEL),
        *("--endpoint", f"dyn://ns{http}.backend.generate", "--speedup-ratio", str(speedup)),
        *("--block-size", str(BLOCK_TOKENS), "--num-gpu-blocks-override", str(blocks)),
        *("--zmq-kv-events-ports", events, "--zmq-replay-ports", replay),
    ]
    frontend = [
        *(str(python), "-m", "dynamo.frontend", "--http-port", http, "--http-host", "127.0.0.1"),
        *("--router-mode", "round-robin", "--tokenizer", "fastokens"),
    ]
    return [[*worker, *planes], [*frontend, *planes]]


@contextmanager
def _running(argv: list[str], env: dict[str, str], log: int) -> Iterator[None]:
    with subprocess.Popen(
        parent_death.command(argv), env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
    ) as process:
        try:
            yield
        finally:
            process.kill()


@contextmanager
def _face(gguf: Path, model: Path, behind: Sequence[Behind]) -> Iterator[list[str]]:
    """The URLs at which each of them looks like vLLM."""
    argv = [sys.executable, "-m", "tests.benchmark.routing.vllm_face", str(gguf), str(model)]
    with subprocess.Popen(
        parent_death.command(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps([asdict(each) for each in behind]).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                raise FleetError("the face of vLLM did not come up")
            yield json.loads(line)
        finally:
            process.kill()


def _wait_listed(url: str, log: Path) -> None:
    """Until its model is listed. Raises FleetError."""
    give_up = time.monotonic() + READY_S
    while time.monotonic() < give_up:
        try:
            with urllib.request.urlopen(f"{url}/v1/models", timeout=5.0) as answer:
                if json.load(answer)["data"]:
                    return
        except OSError:
            pass
        time.sleep(0.05)
    raise FleetError(f"{url} is not ready: {log.read_text(errors='replace')[-2000:]}")
