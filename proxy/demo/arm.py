"""One arm of the demo: fresh engines, a fresh proxy, the workload once, and the engines' counters.

Everything it starts is a child process of the main thread that goes when this process goes.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prefold.backends.embedded import EnginePaths
from prefold.backends.engine_process import start_engine
from prefold.backends.prometheus_text import samples, total
from prefold.proxy.demo.client import Sample, run_requests
from prefold.proxy.demo.workload import Request

Policy = Literal["round_robin", "prefix"]
MODEL_ALIAS = "smollm2"
MAX_TOKENS = 8
"""Answers are short: the demo is about prefill, and decode would only dilute it."""


class DemoError(Exception):
    """The demo cannot go on; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    policy: Policy
    cache: Literal["tight", "roomy"]
    backends: int
    slots: int
    context_per_slot: int
    clients: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """An engine's own totals since it started, by the names of its /metrics; None if absent."""

    computed_tokens: int | None
    cached_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRun:
    arm: Arm
    samples: tuple[Sample, ...]
    counters: dict[str, Counters]
    """By backend name."""
    wall_s: float


def run_arm(
    arm: Arm,
    paths: EnginePaths,
    requests: Sequence[Request],
    *,
    logs: Path,
    on_done: Callable[[], None],
    ledger: Path | None = None,
) -> ArmRun:
    """Raises DemoError and EngineStartError; leaves no process behind either way."""
    with ExitStack() as stack:
        engines = []
        for number in range(arm.backends):
            log = (logs / f"{arm.cache}-{arm.policy}-engine-{number}.log").open("w+b")
            engine = start_engine(
                paths,
                slots=arm.slots,
                context_per_slot=arm.context_per_slot,
                alias=MODEL_ALIAS,
                log=stack.enter_context(log),
            )
            engines.append(stack.enter_context(engine))
        urls = {f"engine-{n}": engine.wait_ready() for n, engine in enumerate(engines)}
        name = f"{arm.cache}-{arm.policy}"
        serving = proxy_process(
            name,
            lambda ports: proxy_config(arm, urls, paths.model, ports, label=name, ledger=ledger),
            logs,
        )
        proxy_url = stack.enter_context(serving)
        before = {name: read_counters(url) for name, url in urls.items()}
        started = time.perf_counter()
        measured = asyncio.run(
            run_requests(
                proxy_url,
                requests,
                model=MODEL_ALIAS,
                clients=arm.clients,
                max_tokens=MAX_TOKENS,
                on_done=on_done,
            )
        )
        wall_s = time.perf_counter() - started
        after = {name: read_counters(url) for name, url in urls.items()}
    grown = {name: difference(after[name], before[name]) for name in urls}
    return ArmRun(arm=arm, samples=tuple(measured), counters=grown, wall_s=wall_s)


def proxy_config(
    arm: Arm,
    urls: dict[str, str],
    model: Path,
    ports: tuple[int, int],
    more: Sequence[str] = (),
    *,
    label: str,
    ledger: Path | None,
) -> str:
    """The TOML that `prefold serve` gets, with `more` lines of tables; JSON strings are valid TOML
    strings. `label` is that of the backends in the ledger, if one is kept: runs are one after the
    other, so they are no arms that were drawn by lot."""
    lines = [
        "[server]",
        'host = "127.0.0.1"',
        f"port = {ports[0]}",
        f"admin_port = {ports[1]}",
        "[routing]",
        f'policy = "{arm.policy}"',
        f"[models.{json.dumps(MODEL_ALIAS)}]",
        f"tokenizer = {json.dumps(str(model))}",
        *more,
    ]
    if ledger is not None:
        lines += ["[ledger]", f"path = {json.dumps(str(ledger.absolute()))}"]
    for name, url in urls.items():
        lines += ["[[backends]]", f"name = {json.dumps(name)}", f"url = {json.dumps(url)}"]
        lines += [f"labels = {{arm = {json.dumps(label)}}}"]
    return "\n".join(lines) + "\n"


def read_counters(url: str) -> Counters:
    """Unknown if the engine does not answer: its requests have failed, and say so."""
    try:
        with urllib.request.urlopen(f"{url}/metrics", timeout=30.0) as response:
            body = response.read()
    except OSError:
        return Counters(computed_tokens=None, cached_tokens=None)
    names = ("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total")
    found = samples(body, names)
    return Counters(computed_tokens=total(found, names[0]), cached_tokens=total(found, names[1]))


def difference(after: Counters, before: Counters) -> Counters:
    def grown(later: int | None, earlier: int | None) -> int | None:
        return None if later is None or earlier is None else later - earlier

    return Counters(
        computed_tokens=grown(after.computed_tokens, before.computed_tokens),
        cached_tokens=grown(after.cached_tokens, before.cached_tokens),
    )


@contextmanager
def proxy_process(
    name: str, make_config: Callable[[tuple[int, int]], str], logs: Path
) -> Iterator[str]:
    """Its URL; `make_config` is given the ports. Raises DemoError."""
    ports = _free_ports()
    config = logs / f"{name}.toml"
    config.write_text(make_config(ports))
    log_file = logs / f"{name}-proxy.log"
    command = [sys.executable, "-m", "prefold.proxy.cli", "serve", "--exit-with-stdin"]
    # The user's own PREFOLD_ variables would override the file.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PREFOLD_")}
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [*command, "--config", str(config)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=env,
        )
    try:
        url = f"http://127.0.0.1:{ports[0]}"
        _wait_until_ready(process, url, log_file)
        yield url
    finally:
        assert process.stdin is not None
        process.stdin.close()  # its sign to leave
        try:
            process.wait(10.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log_file: Path) -> None:
    deadline = time.monotonic() + 60.0
    while not _answers_200(f"{url}/ready"):
        if process.poll() is not None or time.monotonic() > deadline:
            last_lines = "\n".join(log_file.read_text(errors="replace").splitlines()[-10:])
            raise DemoError(f"`prefold serve` did not become ready:\n{last_lines}")
        time.sleep(0.05)


def _answers_200(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5.0) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def _free_ports() -> tuple[int, int]:
    """Two ports that were free a moment ago, taken together so that they differ."""
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1]
