"""The commands as a user runs them: processes of their own."""

import asyncio
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError

import aiohttp
import pytest

from tests.support.upstream import DONE, END, Script, Step, chunk, delta, head, scripted

PREFOLD = [sys.executable, "-m", "prefold.proxy.cli"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PREFOLD, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_help_names_every_command() -> None:
    """And imports nothing heavy to do so."""
    shown = run("--help")

    assert shown.returncode == 0
    for command in ("serve", "check", "demo", "tokenizer"):
        assert command in shown.stdout


def test_serve_without_heavy_imports() -> None:
    """torch, transformers, openai and rich are not loaded to serve."""
    code = (
        "import sys; import prefold.proxy.serve; "
        "print([m for m in ('torch','transformers','openai','rich','gguf','redis') "
        "if m in sys.modules])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert shown.stdout.strip() == "[]"


def test_serve_needs_a_backend() -> None:
    """And says how to give one."""
    shown = run("serve")

    assert shown.returncode == 2
    assert "--backend" in shown.stderr


def test_a_wrong_setting_is_one_line_and_no_stack_trace(tmp_path: Path) -> None:
    """It names the key."""
    config = tmp_path / "prefold.toml"
    config.write_text("[server]\nprot = 1\n")
    shown = run("serve", "--config", str(config))

    assert shown.returncode == 1
    assert "server.port" in shown.stderr
    assert "Traceback" not in shown.stderr


def test_a_port_in_use_is_one_line_and_no_stack_trace() -> None:
    """Not a group of exceptions."""
    with serving() as (_, url):
        port = url.rpartition(":")[2]
        shown = run("serve", "--backend", "http://127.0.0.1:9", "--port", port, "--admin-port", "0")

    assert shown.returncode == 1
    assert "cannot listen" in shown.stderr
    assert "Traceback" not in shown.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("options", [[], ["--exit-with-stdin"]])
def test_a_signal_ends_it_cleanly(number: signal.Signals, options: list[str]) -> None:
    """Exit status 0, also with no backend up, and with a standard input that stays open."""
    with serving(*options) as (process, url):
        assert urllib.request.urlopen(f"{url}/health", timeout=10).status == 200
        process.send_signal(number)

        assert process.wait(timeout=30) == 0


async def test_streams_in_flight_finish_after_sigterm() -> None:
    """And the process ends with status 0 when they have."""
    script: Script = [
        head(),
        chunk(delta("Hi")),
        Step.WAIT,
        chunk(delta(finish="stop")),
        chunk(DONE),
        END,
    ]
    async with scripted(script) as upstream:
        with serving(backend=upstream.url) as (process, url):
            async with aiohttp.ClientSession(url) as http:
                for _ in range(600):
                    async with http.get("/ready") as ready:
                        if ready.status == 200:
                            break
                    await asyncio.sleep(0.05)
                chat = {"model": "m", "stream": True, "messages": [{"role": "user"}]}
                async with http.post("/v1/chat/completions", json=chat) as answer:
                    assert b"Hi" in await answer.content.readany()
                    process.send_signal(signal.SIGTERM)
                    await _until_closed(url)
                    upstream.go_on()
                    assert (await answer.content.read()).endswith(DONE)
            assert await asyncio.to_thread(process.wait, 30) == 0


@pytest.mark.engine
def test_embedded_engines_are_ready_backends_and_go_with_the_proxy(engine_paths: object) -> None:
    """What the README's first steps use; none is left behind."""
    with serving("--embedded", "1", backend=None) as (process, url):
        children = _children(process.pid)
        for _ in range(600):
            with suppress(HTTPError), urllib.request.urlopen(f"{url}/ready", timeout=10) as ready:
                assert ready.status == 200
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)

        assert process.wait(timeout=30) == 0
    assert children
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


async def _until_closed(url: str) -> None:
    with suppress(aiohttp.ClientConnectionError):
        while True:
            async with aiohttp.ClientSession(url) as late, late.get("/health"):
                await asyncio.sleep(0.01)


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_it_ends_with_its_standard_input_if_told_to() -> None:
    """So that it cannot outlive a supervisor that was killed."""
    with serving("--exit-with-stdin") as (process, _):
        assert process.stdin is not None
        process.stdin.close()

        assert process.wait(timeout=30) == 0


def test_check_fails_when_a_backend_does_not_answer() -> None:
    """With a status that a script can use."""
    shown = run("check", "--backend", "http://127.0.0.1:9")

    assert shown.returncode == 1
    assert "backend 127.0.0.1:9: down" in shown.stdout


def test_check_shows_no_secrets(tmp_path: Path) -> None:
    """Only that they are set."""
    config = tmp_path / "prefold.toml"
    config.write_text(
        '[routing]\nsecret = "sentinel-1"\n'
        '[[backends]]\nurl = "http://127.0.0.1:9"\napi_key = "sentinel-2"\n'
    )
    shown = run("check", "--config", str(config))

    assert "routing.secret = (set)" in shown.stdout
    assert "sentinel" not in shown.stdout + shown.stderr


def test_check_shows_what_was_set_and_with_settings_everything() -> None:
    """A hundred and more defaults would hide the one line that matters."""
    few = run("check", "--backend", "http://127.0.0.1:9").stdout
    every = run("check", "--settings", "--backend", "http://127.0.0.1:9").stdout

    assert few.startswith('backends[0].url = "http://127.0.0.1:9"\n')
    assert "settings at their defaults: prefold check --settings)" in few
    assert "routing.policy" not in few
    assert 'routing.policy = "prefix"' in every
    assert "at their defaults" not in every


@pytest.mark.engine
def test_check_tells_engine_capacity_and_mode(engine_url: str) -> None:
    """On a real engine."""
    shown = run("check", "--backend", engine_url)

    assert shown.returncode == 0
    for line in ("llama.cpp", "smollm2", "2 slots x 2048 tokens", "feedback: the engine's tokens"):
        assert line in shown.stdout


@pytest.mark.engine
def test_convert_writes_a_tokenizer(model_path: Path, tmp_path: Path) -> None:
    """GGUF in, tokenizer.json out."""
    shown = run("tokenizer", "convert", str(model_path), str(tmp_path / "out"))

    assert shown.returncode == 0
    assert (tmp_path / "out" / "tokenizer.json").stat().st_size > 1_000_000


@contextmanager
def serving(
    *arguments: str, backend: str | None = "http://127.0.0.1:9"
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """`prefold serve` on free ports, by default before a backend that is not there; its URL."""
    command = [*PREFOLD, "serve", *(["--backend", backend] if backend else [])]
    options = ["--port", "0", "--admin-port", "0", "--log-level", "error", *arguments]
    with subprocess.Popen(
        [*command, *options], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stderr is not None
            found = None
            while found is None:
                line = process.stderr.readline()
                assert line, "it ended before it listened"
                found = re.search(rb"listens on (\S+), admin", line)
            yield process, found[1].decode()
        finally:
            process.kill()
