"""The parent's side of one compressor process: start it, give it batches, end it.

Any fault of the child is ChildGone, after which it is of no more use.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from prefold.compression.worker import process
from prefold.compression.worker.messages import (
    LENGTH_BYTES,
    MAX_FRAME_BYTES,
    Batch,
    Done,
    Failed,
    Open,
    Ready,
    Refused,
    framed,
    report_of,
)

ENVIRONMENT = (
    *("CUDA", "HF_", "HOME", "LANG", "LC_", "LD_LIBRARY_PATH", "MKL_", "NVIDIA_", "OMP_", "PATH"),
    *("TIKTOKEN_", "TMPDIR", "TORCH", "TRANSFORMERS_", "XDG_CACHE_HOME"),
)
"""What begins so is passed on: models and devices are found by it. The rest may be secrets."""


class ChildGone(Exception):
    """It has ended, or what it says is not understood. `cause` is a word for a metric."""

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class CannotOpen(Exception):
    """It cannot be the compressor that is asked for; the message says why."""


class Child:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        running: subprocess.Popen[bytes],
        ready: Ready,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._running = running
        self.ready = ready

    @property
    def pid(self) -> int:
        return self._running.pid

    async def compress(self, jobs: Sequence[tuple[str, float]]) -> Done:
        """Raises ChildGone. If it is cancelled, the child is of no more use either."""
        await _send(self._writer, framed(Batch(list(jobs))))
        report = await _report(self._reader)
        if not isinstance(report, Done) or len(report.kept) != len(jobs):
            raise _nonsense()
        return report


@asynccontextmanager
async def started(
    order: Open, wrap: Callable[[list[str]], list[str]], environment: Mapping[str, str] = os.environ
) -> AsyncIterator[Child]:
    """A child that is ready; killed at the end. `wrap` makes of a command one that ends when this
    process does. Raises ChildGone, CannotOpen, OSError."""
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            running = _process(wrap, theirs.fileno(), _passed_on(environment))
    except BaseException:
        ours.close()
        raise
    try:
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        try:
            await _send(writer, framed(order))
            report = await _report(reader)
            if isinstance(report, Refused):
                raise CannotOpen(report.reason)
            if not isinstance(report, Ready):
                raise _nonsense()
            yield Child(reader, writer, running, report)
        finally:
            writer.close()
    finally:
        running.kill()
        await asyncio.to_thread(running.wait)


def _process(
    wrap: Callable[[list[str]], list[str]], fd: int, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Takes a millisecond. Not the loop's own: one whose start is cancelled outlives the loop."""
    return subprocess.Popen(
        # -P: what lies in the working directory is not imported.
        wrap([sys.executable, "-P", "-m", process.__name__, str(fd)]),
        pass_fds=[fd],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )


def _passed_on(environment: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in environment.items() if name.startswith(ENVIRONMENT)}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


async def _send(writer: asyncio.StreamWriter, frame: bytes) -> None:
    try:
        writer.write(frame)
        await writer.drain()
    except OSError:
        raise _ended() from None


async def _report(reader: asyncio.StreamReader) -> Ready | Refused | Done:
    try:
        length = int.from_bytes(await reader.readexactly(LENGTH_BYTES))
        if length > MAX_FRAME_BYTES:
            raise _nonsense()
        report = report_of(await reader.readexactly(length))
    except (OSError, asyncio.IncompleteReadError):
        raise _ended() from None
    except ValueError:
        raise _nonsense() from None
    if isinstance(report, Failed):
        raise ChildGone(report.reason, report.cause)
    return report


def _ended() -> ChildGone:
    return ChildGone("it has ended", "ended")


def _nonsense() -> ChildGone:
    return ChildGone("it answered something else", "nonsense")
