"""A real engine as a child process: its slots, its death with its parent, its failures."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from prefold.backends.embedded import EnginePaths
from prefold.backends.engine_process import EngineStartError, start_engine

pytestmark = pytest.mark.engine

PARENT = """
import sys, time
from pathlib import Path
from prefold.backends.embedded import EnginePaths
from prefold.backends.engine_process import start_engine
engine = start_engine(EnginePaths(site=Path(sys.argv[1]), model=Path(sys.argv[2])))
if sys.argv[3] == "ready":
    engine.wait_ready()
print(engine.pid, flush=True)
time.sleep(600)
"""


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as response:
        return json.load(response)


def post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        url, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def is_alive(pid: int) -> bool:
    """A zombie, left to whoever reaps orphans here, is not alive."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def gone_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_each_slot_has_the_context_asked_for(engine_paths: EnginePaths) -> None:
    """llama.cpp's n_ctx is a total over the slots; ours is per slot."""
    with start_engine(engine_paths, slots=3, context_per_slot=512, alias="tiny") as engine:
        url = engine.wait_ready()

        assert [slot["n_ctx"] for slot in get(f"{url}/slots")] == [512, 512, 512]
        assert get(f"{url}/props")["total_slots"] == 3
        assert get(f"{url}/v1/models")["data"][0]["id"] == "tiny"
    assert engine.process.returncode == -signal.SIGTERM


def test_a_chat_template_replaces_the_models_own(engine_paths: EnginePaths) -> None:
    """The text given is what /apply-template renders."""
    template = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
    with start_engine(engine_paths, chat_template=template) as engine:
        url = f"{engine.wait_ready()}/apply-template"
        answer = post(url, {"messages": [{"role": "user", "content": "hé"}]})

        assert answer == {"prompt": "<user>hé"}


@pytest.mark.parametrize("moment", ["ready", "starting"])
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_engine_dies_with_its_killed_parent(engine_paths: EnginePaths, moment: str) -> None:
    """SIGKILL gives the parent no chance to tidy up, and the engine still goes."""
    arguments = [str(engine_paths.site), str(engine_paths.model), moment]
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, *arguments], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.kill()

    assert gone_within(pid, 30)


def test_the_engine_ends_when_its_standard_input_does(engine_paths: EnginePaths) -> None:
    """The portable half of dying with the parent: the other end of the pipe is gone."""
    with start_engine(engine_paths) as engine:
        engine.wait_ready()
        assert engine.process.stdin is not None
        engine.process.stdin.close()

        assert engine.process.wait(30) == 0


def test_the_engine_leaves_ctrl_c_to_its_parent(engine_paths: EnginePaths) -> None:
    """A terminal sends SIGINT to the whole group; only the parent decides what it means."""
    with start_engine(engine_paths) as engine:
        url = engine.wait_ready()
        os.kill(engine.pid, signal.SIGINT)

        assert get(f"{url}/health") == {"status": "ok"}


def test_an_engine_that_cannot_start_says_why(engine_paths: EnginePaths, tmp_path: Path) -> None:
    """The error holds the engine's own last lines."""
    model = tmp_path / "broken.gguf"
    model.write_bytes(b"not a model")
    engine = start_engine(EnginePaths(site=engine_paths.site, model=model))

    with pytest.raises(EngineStartError, match=r"(?s)exit status 1.*broken\.gguf"):
        engine.wait_ready()
    assert not is_alive(engine.pid)


def test_a_missing_engine_says_why(engine_paths: EnginePaths, tmp_path: Path) -> None:
    """A child that dies in its first lines is reported the same way."""
    engine = start_engine(EnginePaths(site=tmp_path, model=engine_paths.model))

    with pytest.raises(EngineStartError, match="No module named 'xllamacpp'"):
        engine.wait_ready()


def test_a_missing_system_library_is_named(engine_paths: EnginePaths, tmp_path: Path) -> None:
    """As in a small image: one line that says what to install, and no stack trace."""
    (tmp_path / "xllamacpp.py").write_text(
        'raise ImportError("libgomp.so.1: cannot open shared object file: No such file")'
    )
    engine = start_engine(EnginePaths(site=tmp_path, model=engine_paths.model))

    with pytest.raises(EngineStartError, match="apt-get install libgomp1") as error:
        engine.wait_ready(timeout_s=30)
    assert "Traceback" not in str(error.value)


def test_a_taken_port_is_named(engine_paths: EnginePaths) -> None:
    """Not llama.cpp's last lines."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        engine = start_engine(engine_paths, port=port)
        with pytest.raises(EngineStartError, match=f"cannot listen on 127.0.0.1:{port}"):
            engine.wait_ready(timeout_s=30)


def test_stop_may_be_called_twice(engine_paths: EnginePaths) -> None:
    """Also on an engine that never became ready."""
    engine = start_engine(engine_paths)
    engine.stop()
    engine.stop()

    assert engine.process.returncode is not None


def test_the_log_never_holds_prompts(engine_paths: EnginePaths, tmp_path: Path) -> None:
    """Neither an answered prompt nor a refused one leaves a trace in the engine's output."""
    log = tmp_path / "engine.log"
    with (
        log.open("w+b") as stream,
        start_engine(engine_paths, slots=1, context_per_slot=256, log=stream) as engine,
    ):
        completions = f"{engine.wait_ready()}/v1/completions"
        post(completions, {"prompt": "zebracrossing " * 3, "max_tokens": 1})
        with pytest.raises(urllib.error.HTTPError, match="400") as refused:
            post(completions, {"prompt": "zebracrossing " * 400})
        refused.value.close()
    assert b"zebra" not in log.read_bytes()
