"""`prefold demo` as a user runs it: real engines, a real proxy, and nothing left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from prefold.backends.embedded import EnginePaths

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

DEMO = [sys.executable, "-m", "prefold.proxy.cli", "demo", "--skip-roomy"]
# One client sends in a fixed order, so that every token count below is the same in every run.
SMALL = ["--requests", "8", "--tenants", "3", "--prefix-tokens", "60", "--clients", "1"]


def children_of(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def test_prefix_routing_computes_less_than_round_robin(
    engine_paths: EnginePaths, tmp_path: Path
) -> None:
    """The main job, small: same prompts in both arms, the saving in the engines' own numbers."""
    file = tmp_path / "demo.json"
    result = subprocess.run([*DEMO, *SMALL, "--json", str(file)], capture_output=True, text=True)

    assert result.returncode == 0, result.stdout + result.stderr
    round_robin, prefix = json.loads(file.read_text())["arms"]
    for arm in (round_robin, prefix):
        assert (arm["requests"], arm["errors"]) == (8, 0)
        assert arm["prompt_tokens"] == arm["prefill_tokens_computed"] + arm["prefill_tokens_saved"]
        assert arm["counters_agree"] is True
        assert arm["ttft_ms"]["p50"] > 0
        assert sum(backend["requests"] for backend in arm["backends"]) == 8
    assert [backend["requests"] for backend in round_robin["backends"]] == [4, 4]
    assert prefix["prompt_tokens"] == round_robin["prompt_tokens"]
    assert prefix["prefill_tokens_computed"] < round_robin["prefill_tokens_computed"]
    assert "prefill tokens computed" in result.stdout
    assert "With the tight cache, prefix routing computed" in " ".join(result.stdout.split())


def test_the_json_can_go_to_standard_output(engine_paths: EnginePaths) -> None:
    """With `--json -` nothing but the JSON is there; the table moves to standard error."""
    small = ["--requests", "2", "--tenants", "1", "--prefix-tokens", "10"]
    result = subprocess.run([*DEMO, *small, "--json", "-"], capture_output=True, text=True)

    assert result.returncode == 0, result.stderr
    assert [arm["policy"] for arm in json.loads(result.stdout)["arms"]] == ["round_robin", "prefix"]
    assert "prefill tokens computed" in result.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGKILL, -signal.SIGKILL),
        (signal.SIGTERM, 128 + signal.SIGTERM),
        (signal.SIGINT, 128 + signal.SIGINT),
    ],
)
def test_no_process_is_left_behind(
    engine_paths: EnginePaths, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    """Two engines and the proxy go with the demo, however it ends, in the middle of requests."""
    long_run = ["--requests", "500", "--prefix-tokens", "60", "--keep-logs", str(tmp_path)]
    with subprocess.Popen(
        [*DEMO, *long_run], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stderr is not None
        try:
            wait_until(lambda: requests_in(tmp_path) > 2 or demo.poll() is not None, 120)
            assert demo.poll() is None, demo.stderr.read()
            children = children_of(demo.pid)
            demo.send_signal(number)
            assert demo.wait(60) == status
        finally:
            demo.kill()
        assert demo.stderr.read() == ""

    assert len(children) == 3
    wait_until(lambda: not any(is_alive(child) for child in children), 60)


def requests_in(logs: Path) -> int:
    return sum(log.read_text().count("/v1/chat/completions") for log in logs.glob("*-proxy.log"))


def wait_until(happened: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_the_gate_compresses_what_pays_and_nothing_else(
    engine_paths: EnginePaths, tmp_path: Path
) -> None:
    """New documents are sent shorter, a turn of then as it was sent then, and what an engine holds
    already as it is held."""
    file = tmp_path / "gate.json"
    small = ["--requests", "7", "--prefix-tokens", "200", "--compression", "auto"]
    result = subprocess.run([*DEMO, *small, "--json", str(file)], capture_output=True, text=True)

    assert result.returncode == 0, result.stdout + result.stderr
    situations = {one["situation"]: one for one in json.loads(file.read_text())["situations"]}
    assert situations["new"]["forms"] == {"compressed (pays)": 1}
    assert situations["new"]["sent_tokens"] < 0.8 * situations["new"]["prompt_tokens"]
    assert situations["new"]["predicted_gain_ms"] > 0
    assert situations["next turn"]["forms"] == {"compressed (kept)": 1}
    assert next(iter(situations["cached whole"]["forms"])).startswith("original")
