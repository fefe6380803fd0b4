"""What people type wrong, and what they read then: one to three lines that say what is wrong,
where, and what to type next. Usage is status 2, all else 1.
"""

from __future__ import annotations

import http.server
import os
import pty
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from prefold.proxy.cli import main

PREFOLD = [sys.executable, "-m", "prefold.proxy.cli"]
NOBODY = "http://127.0.0.1:9"
TRACE = '{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [1]}\n'


def run(*arguments: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PREFOLD, *arguments],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def told(stderr: str) -> list[str]:
    """Lines of the error itself: click puts two lines of usage before it."""
    assert "Traceback" not in stderr
    lines = [line for line in stderr.splitlines() if line]
    return [line for line in lines if not line.startswith(("Usage:", "Try '"))]


def typed(arguments: str) -> Result:
    """In this process: what is wrong is found before anything is started."""
    return CliRunner().invoke(main, arguments.split(), prog_name="prefold")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with files that are not what they are given for."""
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "empty": "",
        "foreign": "no database, no JSON",
        "bad.jsonl": '{"timestamp": 1}\n',
        "good.jsonl": TRACE,
        "port.toml": "port = 8000\n",
        "syntax.toml": "[server\nport = 1\n",
        "policy.toml": '[routing]\npolicy = "prefx"\n',
        "mask.toml": "[[masks]]\npattern = '(open'\n",
        "key.toml": '[server]\nadmin_key_file = "none"\n',
        "redis.toml": '[redis]\nurl = "127.0.0.1:6379"\n[routing]\nsecret = "0123456789abcdef"\n',
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("create table t (a)")
    other.close()
    return tmp_path


USAGE = [
    ("serv", "did you mean", "serve"),
    ("serve", "no backends", "--backend URL"),
    ("serve --prot 1", "--prot", "--port"),
    (f"serve --port 99999 --backend {NOBODY}", "99999", "0<=x<=65535"),
    ("serve --config none.toml", "none.toml", "does not exist"),
    ("engine --port 99999", "99999", "0<=x<=65535"),
    ("compress-server --port 99999", "99999", "0<=x<=65535"),
    ("report", "no ledger", "--ledger FILE"),
    ("diagnose", "nothing to look at", "--admin URL"),
    ("metrics good.jsonl --profile vlm", "vlm", "known: prefold"),
    ("simulate --trace good.jsonl --policy best", "best", "round_robin"),
    ("simulate --synthetic unique --json none/out.json", "--json", "no folder none"),
    ("simulate --synthetic unique --plot .", "--plot", "is a folder"),
    ("replay --trace good.jsonl --target 127.0.0.1:80", "--target", "http://HOST:PORT"),
    (f"replay --trace good.jsonl --target {NOBODY} --timelines none/x", "no folder", "none"),
    ("demo --json none/out.json", "--json", "no folder none"),
]


@pytest.mark.parametrize(("arguments", "wrong", "right"), USAGE, ids=[one[0] for one in USAGE])
@pytest.mark.usefixtures("folder")
def test_usage(arguments: str, wrong: str, right: str) -> None:
    """Status 2; what was typed, and what could have been."""
    shown = typed(arguments)

    assert shown.exit_code == 2
    lines = told(shown.stderr)
    assert 1 <= len(lines) <= 3
    assert wrong.lower() in lines[-1].lower()
    assert right in lines[-1]


FAILURES = [
    ("serve --backend 127.0.0.1:8080", "backends[0].url", "did you mean http://127.0.0.1:8080?"),
    ("serve --backend http://a/v1", "backends[0].url", "only scheme, host and port"),
    (f"serve --backend {NOBODY} --port 8001", "server.admin_port", "give it another"),
    ("check --config port.toml", "port", "did you mean server.port?"),
    ("check --config syntax.toml", "syntax.toml", "line 1"),
    ("check --config policy.toml", "routing.policy", "did you mean prefix?"),
    ("check --config mask.toml", "masks[0].pattern", "missing )"),
    ("check --config key.toml", "server.admin_key_file", "No such file"),
    ("check --config redis.toml", "redis.url", "expected redis"),
    ("report --ledger none", "none", "no such file"),
    ("report --ledger empty", "empty", "ledger.path"),
    ("report --ledger foreign", "foreign", "no ledger"),
    ("report --ledger other.db", "other.db", "something else"),
    ("diagnose --ledger foreign", "foreign", "no ledger"),
    (f"diagnose --admin {NOBODY}", NOBODY, "is it running"),
    (f"top --admin {NOBODY}", NOBODY, "is it running"),
    ("top --admin 127.0.0.1:9", "127.0.0.1:9", "http://HOST:PORT"),
    ("metrics foreign", "foreign:1", "JSON"),
    ("metrics empty", "empty", "--timelines"),
    (f"replay --trace bad.jsonl --target {NOBODY}", "bad.jsonl, line 1", "input_length"),
    (f"replay --trace good.jsonl --target {NOBODY}", NOBODY, "is it running"),
    ("simulate --trace bad.jsonl", "bad.jsonl, line 1", "input_length"),
    ("simulate --trace empty", "empty", "no requests"),
    ("tokenizer convert foreign out", "foreign", "GGUF"),
    ("compress foreign --compressor surprisal --model none.gguf", "none.gguf", "No such file"),
]


@pytest.mark.parametrize(("arguments", "where", "why"), FAILURES, ids=[one[0] for one in FAILURES])
@pytest.mark.usefixtures("folder")
def test_failures(arguments: str, where: str, why: str) -> None:
    """Status 1; one line with the place and the reason."""
    shown = typed(arguments)

    assert isinstance(shown.exception, SystemExit)
    assert shown.exit_code == 1
    lines = told(shown.stderr)
    assert len(lines) == 1
    assert where in lines[0]
    assert why in lines[0]


@pytest.mark.parametrize("option", ["--port", "--admin-port"])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_taken_port_is_told_with_the_option_that_moves_it(
    folder: Path, option: str, workers: str
) -> None:
    """Of the port that is taken, not of the other one."""
    ports = {"--port": "0", "--admin-port": "0"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports[option] = str(taken.getsockname()[1])
        given = [text for pair in ports.items() for text in pair]
        shown = run("serve", "--backend", NOBODY, "--workers", workers, *given, folder=folder)

    assert shown.returncode == 1
    [line] = told(shown.stderr)
    assert f"cannot listen on 127.0.0.1:{ports[option]}" in line
    assert f"another {option} " in line


@contextmanager
def answering(status: int) -> Iterator[str]:
    """A server that has one answer to everything."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (401, "refuses its key (status 401): set api_key"),
        (404, "no OpenAI-like server"),
        (500, "answers with status 500"),
        (503, "its model is not loaded yet"),
    ],
)
def test_check_says_why_a_backend_is_not_ready(folder: Path, status: int, why: str) -> None:
    """Each of these wants something else of whoever reads it."""
    with answering(status) as url:
        shown = run("check", "--backend", url, folder=folder)

    assert shown.returncode == 1
    assert why in shown.stdout
    assert not shown.stderr


def test_check_warns_of_what_is_allowed_and_may_not_be_meant(folder: Path) -> None:
    """A tokenizer that is not there, a port that is open to all; a hub id is no file."""
    (folder / "prefold.toml").write_text(
        '[server]\nhost = "0.0.0.0"\n[models.a]\ntokenizer = "none.gguf"\n'
        '[models.b]\ntokenizer = "org/name"\n',
        encoding="utf-8",
    )
    warned = told(typed("check --config prefold.toml").stderr)

    assert len(warned) == 2
    assert "no [[keys]]" in warned[0]
    assert 'models."a".tokenizer: there is no none.gguf' in warned[1]


def test_check_says_that_nothing_listens_or_has_no_address(folder: Path) -> None:
    """A port that is wrong, and a name that is."""
    shown = run("check", "--backend", NOBODY, "--backend", "http://nobody.invalid", folder=folder)

    assert shown.returncode == 1
    assert f"nothing listens at {NOBODY}" in shown.stdout
    assert "no address is known for its host" in shown.stdout


LONG = ["check --backend {}", "replay --trace good.jsonl --target {} --model m", "top --admin {}"]


@pytest.mark.parametrize("arguments", LONG, ids=[one.split()[0] for one in LONG])
def test_ctrl_c_ends_what_waits_without_a_stack_trace(folder: Path, arguments: str) -> None:
    """The server takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(30)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [*PREFOLD, *arguments.format(url).split()],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        connection, _ = silent.accept()  # it waits from here on
        with connection:
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=30)

    assert process.returncode in (0, 1, 130)
    assert "Traceback" not in stderr


def test_progress_is_for_terminals(folder: Path) -> None:
    """On standard error, of which nothing is left where it is piped; never in the figures."""
    command = ["simulate", "--synthetic", "unique", "--requests", "50", "--policy", "prefold"]
    piped = run(*command, folder=folder)
    main, terminal = pty.openpty()
    with os.fdopen(terminal, "wb") as stderr:
        seen = subprocess.run(
            [*PREFOLD, *command],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            timeout=60,
            check=True,
            env={**os.environ, "TERM": "xterm"},
        )
    with os.fdopen(main, "rb", buffering=0) as shown:
        progress = shown.read(65536)

    assert piped.returncode == 0
    assert not piped.stderr
    assert b"simulating prefold" in progress
    assert "\x1b" not in seen.stdout
    assert "simulating" not in seen.stdout
