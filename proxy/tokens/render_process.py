"""One template's rendering process: started when first needed, killed when it takes too long,
started again after a pause. Blocking, for one caller at a time; knows neither chats nor tokens.
"""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from prefold.proxy.errors import NotEncodable
from prefold.proxy.tokens import render_worker as worker
from prefold.proxy.tokens.template_engines import MAX_TEXT_CHARS, OverBound, TemplateRefusal

START_S = 30.0
"""An interpreter starts and imports two libraries, maybe on a machine that starts much else."""
PAUSE_S = 10.0
"""After a kill: a template that always takes too long costs one deadline in this time."""
MEMORY_BYTES = 2**30
MAX_ANSWER_BYTES = 4 * MAX_TEXT_CHARS


class Unreadable(Exception):
    """The library cannot compile the template; the message is the library's."""


class RenderProcess:
    """Mutable; `close` ends the process, and so does the end of this one."""

    def __init__(self, source: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._not_before = 0.0

    def render(self, engine: str, variables: dict[str, Any], *, within_s: float) -> str:
        """The text that `engine` (`render_worker.REFERENCE` or `FAST`) renders. Raises Unreadable,
        TemplateRefusal, NotEncodable, and OverBound, also while it pauses after a kill."""
        with self._lock:
            if self._running is None:
                if self._clock() < self._not_before:
                    raise OverBound("the chat template took too long a moment ago")
                self._running = _Running(self._source)
            try:
                kind, text = self._running.ask((engine, variables, within_s), within_s)
            except OSError:  # a time-out too
                self.close()
                self._not_before = self._clock() + PAUSE_S
                raise OverBound("the chat template takes too long") from None
        if kind == worker.TEXT:
            return text
        if kind == worker.REFUSED:
            raise TemplateRefusal
        if kind == worker.UNREADABLE:
            raise Unreadable(text)
        raise (OverBound if kind == worker.OVER else NotEncodable)(text)

    def close(self) -> None:
        if self._running is not None:
            self._running.end()
            self._running = None

    @property
    def pid(self) -> int | None:
        return self._running.pid if self._running is not None else None


class _Running:
    def __init__(self, source: str) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            fd = theirs.fileno()
            child = subprocess.Popen(
                # -P: what lies in the working directory is not imported.
                [sys.executable, "-P", "-m", worker.__name__, str(fd), str(MEMORY_BYTES)],
                pass_fds=[fd],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Nothing else: secrets of ours are no business of a template.
                env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self.pid = child.pid
        self.end = weakref.finalize(self, _end, child, self._socket)
        self._started = False
        self._send(pickle.dumps(source), START_S)

    def ask(self, job: tuple[str, dict[str, Any], float], within_s: float) -> tuple[bytes, str]:
        """Raises OSError if there is no answer in time."""
        # The child's own alarm comes first where it runs at all.
        patience = within_s + (0.5 if self._started else START_S)
        self._send(pickle.dumps(job), patience)
        answer = self._receive(time.monotonic() + patience)
        self._started = True
        return answer[:1], answer[1:].decode("utf-8", "surrogatepass")

    def _send(self, data: bytes, seconds: float) -> None:
        self._socket.settimeout(seconds)
        self._socket.sendall(len(data).to_bytes(worker.LENGTH_BYTES) + data)

    def _receive(self, until: float) -> bytes:
        length = int.from_bytes(self._exactly(worker.LENGTH_BYTES, until))
        if length > MAX_ANSWER_BYTES:
            raise OSError("too long an answer")
        return self._exactly(length, until)

    def _exactly(self, length: int, until: float) -> bytes:
        data = bytearray()
        while len(data) < length:
            self._socket.settimeout(max(until - time.monotonic(), 0.001))
            piece = self._socket.recv(min(length - len(data), 2**20))
            if not piece:
                raise ConnectionError("the rendering process has ended")
            data += piece
        return bytes(data)


def _end(child: subprocess.Popen[bytes], ours: socket.socket) -> None:
    ours.close()
    child.kill()
    child.wait()
