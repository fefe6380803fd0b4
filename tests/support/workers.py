"""`prefold serve --workers N` from outside, and connections to a certain one of its workers.

Which worker a new connection gets is the kernel's choice. The test opens some until it has one of
the worker it wants: whose it is, /proc tells.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.wire.process import ProxyProcess, proxy_process, toml
from tests.wire.raw_client import RawAnswer, ask, post, read_answer

SERVER = {"port": 0, "admin_port": 0, "workers": 2, "lame_duck_s": 0.0, "drain_s": 5.0}
HEALTH = {"interval_s": 0.2}


@dataclass(slots=True)
class Connection:
    """A kept one, to one worker."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, request: bytes) -> RawAnswer:
        self.writer.write(request)
        return await read_answer(self.reader)


@dataclass(slots=True)
class WorkersProcess:
    proxy: ProxyProcess
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    """Of all connections that were made."""

    @property
    def config(self) -> Path:
        """The settings file that it was started with."""
        command = Path(f"/proc/{self.proxy.process.pid}/cmdline").read_bytes().split(b"\0")
        return Path(os.fsdecode(command[command.index(b"--config") + 1]))

    def pids(self) -> list[int]:
        """Of the workers that are there now, oldest first."""
        parent = self.proxy.process.pid
        listed = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return sorted(int(pid) for pid in listed if _is_worker(int(pid)))

    async def connect(self, pid: int) -> Connection:
        """To the worker of this pid."""
        parts = urlsplit(self.proxy.url)
        for _ in range(2000):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            self.writers.append(writer)
            ours = writer.get_extra_info("sockname")[1]
            await _answered(reader, writer)  # it is accepted: the connection has an owner
            if _has(pid, ours):
                return Connection(reader, writer)
            writer.close()
            await asyncio.sleep(0.002)  # it may just be starting
        raise AssertionError(f"no connection went to worker {pid}")

    async def until_ready(self, backends: int) -> None:
        """Every worker has so many backends, and has told how it is since."""
        for pid in self.pids():
            connection = await self.connect(pid)
            await eventually(partial(_ready, connection, backends))
            connection.writer.close()

    async def backends(self) -> list[dict[str, Any]]:
        answer = await ask(self.proxy.admin_url, _admin("GET", "/backends"))
        listed: list[dict[str, Any]] = answer.json()["backends"]
        return listed

    async def admin(self, method: str, path: str, body: bytes = b"") -> RawAnswer:
        return await ask(self.proxy.admin_url, _admin(method, path, body))

    async def in_flight(self) -> int:
        return sum(backend["in_flight"] for backend in await self.backends())

    async def counted(self) -> int:
        return int(sum((await self.proxy.total("prefold_requests_total")).values()))


@asynccontextmanager
async def workers(
    urls: Sequence[str],
    tables: Mapping[str, Any] | None = None,
    backend: Mapping[str, Any] | None = None,
) -> AsyncIterator[WorkersProcess]:
    """Before these backends, b0 and so on, with more settings for all of them; all workers know
    them."""
    listed = [{"name": f"b{n}", "url": url, **(backend or {})} for n, url in enumerate(urls)]
    defaults = {"server": SERVER, "health": HEALTH, "backends": listed}
    async with proxy_process(toml({**defaults, **(tables or {})})) as proxy:
        made = WorkersProcess(proxy)
        try:
            await made.until_ready(len(urls))
            yield made
        finally:
            for writer in made.writers:
                writer.close()


async def eventually(condition: Any, *, tries: int = 400) -> None:
    """Poll a state that other processes bring about; fails when it never comes."""
    for _ in range(tries):
        if await condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the state never came")


async def _ready(connection: Connection, backends: int) -> bool:
    answer = await connection.ask(post("/ready", b"", method="GET"))
    return len(answer.json()["backends"]) == backends


async def _answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(post("/health", b"", method="GET"))
    await read_answer(reader)


def _admin(method: str, path: str, body: bytes = b"") -> bytes:
    return post(path, body, {"Host": "127.0.0.1"}, method)


def _is_worker(pid: int) -> bool:
    try:
        return b"workers.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _has(pid: int, port: int) -> bool:
    """Whether the process holds the far end of our connection from this port."""
    remote = f":{port:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[2].endswith(remote) and fields[3] == "01" and int(fields[9]) in _inodes(pid):
            return True
    return False


def _inodes(pid: int) -> set[int]:
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(fd))
        except OSError:
            continue
        if match:
            found.add(int(match[1]))
    return found
