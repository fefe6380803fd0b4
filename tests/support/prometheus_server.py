"""A real Prometheus for tests, and its promtool: the system's, or one in the folder that
PREFOLD_PROMETHEUS_BIN names.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.requirements import skip_or_fail

MISSING = (
    "no Prometheus: apt-get install prometheus, or unpack it and name its folder in"
    " PREFOLD_PROMETHEUS_BIN"
)


def program(name: str) -> str:
    """`prometheus` or `promtool`. Skips the test, or fails it, where there is none."""
    found = shutil.which(name, path=os.environ.get("PREFOLD_PROMETHEUS_BIN") or None)
    return found or skip_or_fail(MISSING)


def promtool(*arguments: str | Path) -> str:
    """What it prints; fails the test with that if it is not content."""
    done = subprocess.run(
        [program("promtool"), *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def prometheus(config: Path, folder: Path) -> Iterator[str]:
    """Its URL, once it is ready."""
    port = free_port()
    log = (folder / "prometheus.log").open("wb")
    process = subprocess.Popen(
        [
            program("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: answers(f"{url}/-/ready"))
        yield url
    finally:
        process.terminate()
        process.wait(20)
        log.close()


def query(url: str, expression: str) -> list[dict[str, Any]]:
    """The result vector at this moment; fails the test where it is not understood."""
    asked = f"{url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    with urllib.request.urlopen(asked, timeout=10) as answer:
        said = json.load(answer)
    assert said["status"] == "success", said
    result: list[dict[str, Any]] = said["data"]["result"]
    return result


def wait_for(condition: Any, *, seconds: float = 40.0) -> None:
    """Of another process; fails when it never comes."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the state never came"
        time.sleep(0.1)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
