"""Start and stop one embedded engine: a child process that serves llama.cpp's HTTP API.

Synchronous on purpose: starting is a few milliseconds, and only `wait_ready` waits (from a
coroutine: `await asyncio.to_thread(engine.wait_ready, 60.0)`). Call `start_engine` from the main
thread: the kernel ties the child's life to the thread that started it.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Self

import msgspec

from prefold.backends.embedded import EnginePaths, missing_cpu_features
from prefold.backends.engine_child import ChildOptions

_LOG_TAIL_BYTES = 2000
_KNOWN = (
    (re.compile(r"libgomp\S*: cannot open"), "no OpenMP here; on Debian, apt-get install libgomp1"),
    (re.compile(r"(lib[\w.+-]+): cannot open shared object"), r"this system has no \1"),
    (
        re.compile(r"couldn't bind HTTP server socket, hostname: (\S+), port: (\d+)"),
        r"it cannot listen on \1:\2; something else does, or it is no address of this machine",
    ),
)
"""What its last words can mean, and how to say it."""


class EngineStartError(Exception):
    """The engine did not come up; the message says why, with its last lines of output."""


@dataclass(slots=True, kw_only=True)
class EngineProcess:
    """A running engine. `stop()` or leaving the `with` block ends it; so does our own death."""

    process: subprocess.Popen[bytes]
    log: IO[bytes]
    url: str = field(default="", init=False)
    """Base URL without a path, "http://127.0.0.1:PORT"; set by `wait_ready`."""

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_ready(self, timeout_s: float = 60.0) -> str:
        """Wait for the address and for 200 on /health; the base URL. Raises EngineStartError."""
        deadline = time.monotonic() + timeout_s
        try:
            self.url = self._read_address(deadline)
            while not _healthy(self.url):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise EngineStartError(self._reason("did not become healthy"))
                time.sleep(0.05)
        except BaseException:
            self.stop()
            raise
        return self.url

    def stop(self, timeout_s: float = 5.0) -> None:
        """SIGTERM, then SIGKILL after `timeout_s`. May be called again."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.log):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _read_address(self, deadline: float) -> str:
        assert self.process.stdout is not None
        timeout_s = max(0.0, deadline - time.monotonic())
        readable, _, _ = select.select([self.process.stdout], [], [], timeout_s)
        if not readable:
            raise EngineStartError(self._reason("gave no address in time"))
        address = self.process.stdout.readline().decode().strip()
        if not address:  # end of file: it is gone, or about to be
            try:
                self.process.wait(5.0)
            except subprocess.TimeoutExpired:
                raise EngineStartError(self._reason("closed its output")) from None
            raise EngineStartError(self._reason(f"ended with {_status(self.process.returncode)}"))
        return address

    def _reason(self, what: str) -> str:
        size = self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, size - _LOG_TAIL_BYTES))
        tail = self.log.read().decode(errors="replace").strip()
        for known, said in _KNOWN:
            if found := known.search(tail):
                return f"the engine {what}: {found.expand(said)}"
        missing = missing_cpu_features()
        hint = f"; this CPU lacks {', '.join(missing)}" if missing else ""
        return f"the engine {what}{hint}; its last output:\n{tail or '(none)'}"


def start_engine(
    paths: EnginePaths,
    *,
    slots: int = 2,
    context_per_slot: int = 2048,
    threads: int = 1,
    alias: str = "smollm2",
    chat_template: str | None = None,
    port: int = 0,
    host: str = "127.0.0.1",
    log: IO[bytes] | None = None,
) -> EngineProcess:
    """Start an engine and return at once; `wait_ready` gives its URL.

    `chat_template` is Jinja text in place of the model's own. `log` takes the engine's messages
    (never prompts) and is closed by `stop`; None keeps them in an unnamed temporary file.
    """
    options = ChildOptions(
        parent=os.getpid(),
        site=str(paths.site),
        model=str(paths.model),
        alias=alias,
        slots=slots,
        context_per_slot=context_per_slot,
        threads=threads,
        port=port,
        host=host,
        chat_template=chat_template,
    )
    if log is None:
        log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by EngineProcess.stop
    process = subprocess.Popen(
        [sys.executable, "-m", "prefold.backends.engine_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        bufsize=0,  # closing a pipe whose reader died must not try to flush
    )
    engine = EngineProcess(process=process, log=log)
    assert process.stdin is not None
    try:
        # Left open afterwards: its end is the child's sign to leave.
        process.stdin.write(msgspec.json.encode(options) + b"\n")
    except BrokenPipeError:
        pass  # it died at once; wait_ready says why
    except BaseException:
        engine.stop()
        raise
    return engine


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5.0) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False  # 503 while loading arrives here too (HTTPError)


def _status(returncode: int) -> str:
    if returncode < 0:
        return f"signal {signal.Signals(-returncode).name}"
    return f"exit status {returncode}"
