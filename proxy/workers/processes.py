"""The worker processes: started, started again when one dies, and ended."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from prefold.proxy.workers.channel import Channel
from prefold.proxy.workers.hub import Hub
from prefold.proxy.workers.messages import Frame, Kind, Start
from prefold.proxy.workers.table import Table

log = logging.getLogger(__name__)
FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 5.0
LONG_LIFE_S = 30.0
"""After which a death is no part of a series."""
READ_OUT_S = 5.0
"""For what a worker that has ended wrote before."""
KILL_AFTER_S = 5.0


class WorkerFailed(Exception):
    """A worker ended before all of them listened."""


@dataclass(slots=True)
class Worker:
    source: int
    process: asyncio.subprocess.Process
    channel: Channel

    def signal(self, number: signal.Signals) -> None:
        """No matter if it has ended."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)


class Workers:
    """`make_start` gives the first order of the worker of a number, as of now."""

    def __init__(
        self,
        *,
        count: int,
        table: Table,
        table_fd: int,
        hub: Hub,
        make_start: Callable[[int], Start],
    ) -> None:
        self._count = count
        self._table = table
        self._table_fd = table_fd
        self._hub = hub
        self._make_start = make_start
        self._sources = 0
        self._current: dict[int, Worker] = {}
        self._listening: set[int] = set()
        self._all_listen = asyncio.Event()
        self._ending = asyncio.Event()

    def listens(self, source: int) -> None:
        """Told by a worker."""
        self._listening.add(source)
        current = {worker.source for worker in self._current.values()}
        if len(current & self._listening) == self._count:
            self._all_listen.set()

    async def all_listen(self) -> None:
        await self._all_listen.wait()

    async def run(self) -> None:
        """Returns when all have ended after `end`. Raises WorkerFailed."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._count):
                group.create_task(self._keep(number), name=f"worker {number}")

    def end(self, number: signal.Signals) -> None:
        """All of them, each as one process alone would end. None is started again."""
        self._ending.set()
        for worker in self._current.values():
            worker.signal(number)

    async def kill_after(self, seconds: float) -> None:
        """Those that have not ended by then."""
        await asyncio.sleep(seconds + KILL_AFTER_S)
        for worker in self._current.values():
            if worker.process.returncode is None:
                log.error("worker %d does not end", worker.process.pid)
                worker.signal(signal.SIGKILL)

    async def _keep(self, number: int) -> None:
        deaths = 0
        while not self._ending.is_set():
            began = time.monotonic()
            end = await self._live(number)
            if self._ending.is_set():
                return
            if not self._all_listen.is_set():
                raise WorkerFailed(f"a worker {end} before it listened")
            deaths = 0 if time.monotonic() - began > LONG_LIFE_S else deaths + 1
            pause_s = min(FIRST_PAUSE_S * 2**deaths, MAX_PAUSE_S)
            log.error("worker %d %s; another in %.1f s", number, end, pause_s)
            await self._pause(pause_s)

    async def _live(self, number: int) -> str:
        """One worker's life, and how it ended."""
        try:
            worker = await self._start(number)
        except OSError as error:
            return f"could not be started: {error.strerror}"
        try:
            code = await worker.process.wait()
            await asyncio.wait([worker.channel.closed], timeout=READ_OUT_S)
        finally:
            self._bury(number, worker)
        return f"ended with signal {-code}" if code < 0 else f"ended with status {code}"

    async def _pause(self, seconds: float) -> None:
        waiting = asyncio.ensure_future(self._ending.wait())
        await asyncio.wait([waiting], timeout=seconds)
        waiting.cancel()

    async def _start(self, number: int) -> Worker:
        ours, theirs = socket.socketpair()
        with theirs, ExitStack() as unused:
            unused.callback(ours.close)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "prefold.proxy.workers.worker"),
                *(str(os.getpid()), str(theirs.fileno()), str(self._table_fd)),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), self._table_fd),
                start_new_session=True,  # Ctrl-C is the parent's to hear
            )
            unused.pop_all()
        self._sources += 1
        source = self._sources
        _, channel = await asyncio.get_running_loop().create_unix_connection(
            lambda: Channel(
                on_frame=lambda frame: self._on_frame(source, frame),
                on_recovery=lambda: self._hub.recovered(source),
            ),
            sock=ours,
        )
        worker = self._current[number] = Worker(source, process, channel)
        channel.send(Kind.ORDERS, [self._make_start(number)])
        self._hub.join(source, channel)
        if self._ending.is_set():
            worker.signal(signal.SIGTERM)
        return worker

    def _on_frame(self, source: int, frame: Frame) -> None:
        self._hub.on_frame(source, frame)

    def _bury(self, number: int, worker: Worker) -> None:
        """Also one that lives, if there is nobody to wait for it any more."""
        worker.signal(signal.SIGKILL)
        worker.channel.close()
        self._table.clear(number)
        self._hub.leave(worker.source)
