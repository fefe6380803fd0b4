"""`make image-check`: the image, built, and docker-compose.yml, run, with Docker. Not part of the
tests: it takes minutes, and the ports that the file publishes.

Grafana is not started. With --stand-ins the base images are made from Debian.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.deploy import stand_ins
from tests.deploy.promql import ROOT
from tests.support.prometheus_server import query, wait_for

PROXIES = {"proxy-1": "http://127.0.0.1:8000", "proxy-2": "http://127.0.0.1:8010"}
PROMETHEUS = "http://127.0.0.1:9090"
GRACE_S = 40.0
COMPOSE = ("docker", "compose", "--project-name", "prefold-check")
SYSTEM = "You answer questions of visitors about the opening hours of the city's museums. " * 12
CHATS = 8


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--stand-ins", action="store_true", help="base images from Debian")
    wanted = options.parse_args()
    if reason := _missing():
        print(f"skipped: {reason}")
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            if wanted.stand_ins:
                stand_ins.make_all(Path(folder))
            with _running():
                _check_image()
                _check_shared_prefix()
                _check_monitoring()
                _check_ending()
        finally:
            if wanted.stand_ins:
                stand_ins.remove_all()
    print("all well")


def _missing() -> str:
    """Why this machine cannot; "" if it can."""
    for command, what in ((("info",), "Docker daemon"), (("compose", "version"), "Compose plugin")):
        try:
            answer = subprocess.run(["docker", *command], capture_output=True, check=False)
        except FileNotFoundError:
            return "there is no program `docker`"
        if answer.returncode:
            return f"no {what} answers"
    return ""


@contextmanager
def _running() -> Iterator[None]:
    """All but Grafana, from an image of this tree; gone afterwards, with its volumes."""
    os.environ["PREFOLD_ADMIN_KEY"] = secrets.token_hex(24)
    os.environ["PREFOLD_SECRET"] = secrets.token_hex(24)
    try:
        _compose("up", "--build", "--detach", *PROXIES, "prometheus")
        wait_for(lambda: _value("sum(prefold_replicas_others)") == len(PROXIES), seconds=60)
        yield
    except BaseException:
        _compose("logs", "--tail", "30")
        raise
    finally:
        _compose("down", "--volumes", "--timeout", "1")


def _check_image() -> None:
    """It runs as 10001, user and group, and can write nothing but its cache."""
    ids = _output("exec", "--no-TTY", "proxy-1", "sh", "-c", "id -u; id -g")
    assert ids.split() == ["10001", "10001"], ids
    tried = "touch /cache/made && ! touch /prefold/made 2>/dev/null && echo as it should"
    assert "as it should" in _output("exec", "--no-TTY", "proxy-1", "sh", "-c", tried)
    size = subprocess.check_output(
        ["docker", "image", "inspect", "prefold", "--format", "{{.Size}}"], text=True
    )
    print(f"image: {int(size) / 1e6:.0f} MB, user and group 10001")


def _check_shared_prefix() -> None:
    """Chats with one beginning, through both proxies by turns: engines report it as cached."""
    for number in range(CHATS):
        url = list(PROXIES.values())[number % len(PROXIES)]
        with _chat(url, f"Is museum {number} open?", max_tokens=8) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] > 0
    done = 'sum(prefold_requests_total{outcome="ok"})'
    wait_for(lambda: _value(done) == CHATS, seconds=30)
    saved = _value("sum(prefold_saved_prefill_tokens_total)")
    prompts = _value("sum(prefold_prompt_tokens_total)")
    print(f"{CHATS} chats, 2 proxies: {saved:.0f} of {prompts:.0f} prompt tokens saved")
    assert saved > prompts / 2


def _check_monitoring() -> None:
    """Prometheus reaches both admin ports with the key, and took every rule."""
    assert _value('count(up{job="prefold"} == 1)') == len(PROXIES)
    assert _value("min(prefold_replicas_redis_up)") == 1
    with urllib.request.urlopen(f"{PROMETHEUS}/api/v1/rules", timeout=10) as answer:
        groups = json.load(answer)["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert rules
    assert all(rule["health"] in ("ok", "unknown") for rule in rules)  # unknown: not yet evaluated
    print(f"Prometheus: {len(PROXIES)} targets up, {len(rules)} rules taken")


def _check_ending() -> None:
    """`docker compose stop` with a stream in flight: it ends whole, and the status is 0."""
    ended: list[bytes] = []
    stream = _chat(PROXIES["proxy-1"], "Tell a story of a keeper.", max_tokens=300, stream=True)
    begun = stream.readline()
    reader = threading.Thread(target=lambda: ended.append(begun + stream.read()))
    reader.start()
    start = time.monotonic()
    _compose("stop", *PROXIES)
    took_s = time.monotonic() - start
    reader.join(timeout=GRACE_S)
    statuses = [_status(name) for name in PROXIES]
    print(f"stopped in {took_s:.1f} s, a stream of 300 tokens in flight; exit statuses {statuses}")
    assert ended
    assert ended[0].rstrip().endswith(b"data: [DONE]")
    assert statuses == [0, 0]
    assert took_s < GRACE_S


def _chat(url: str, question: str, **members: Any) -> Any:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    body = json.dumps({"model": "smollm2", "messages": messages, **members}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, headers)
    return urllib.request.urlopen(request, timeout=60)


def _value(expression: str) -> float:
    """Of a query with one result; -1 while there is none, or no Prometheus yet."""
    try:
        result = query(PROMETHEUS, expression)
    except OSError:
        return -1.0
    return float(result[0]["value"][1]) if result else -1.0


def _status(service: str) -> int:
    container = _output("ps", "--all", "--quiet", service).strip()
    told = ["docker", "inspect", container, "--format", "{{.State.ExitCode}}"]
    return int(subprocess.check_output(told, text=True))


def _compose(*arguments: str) -> None:
    subprocess.run([*COMPOSE, *arguments], check=True, cwd=ROOT)


def _output(*arguments: str) -> str:
    return subprocess.check_output([*COMPOSE, *arguments], cwd=ROOT, text=True)


if __name__ == "__main__":
    main()
