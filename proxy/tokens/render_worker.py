"""The process in which chat templates are rendered without trust: `python -m` this, with the number
of a connected socket and the limits. One template for its whole life; it knows no settings, and its
parent gives it no environment.

A message is its length in eight bytes and then itself. It reads pickled jobs, which its parent
made, and answers with a letter and UTF-8 text, which its parent need not trust.
"""

from __future__ import annotations

import pickle
import resource
import signal
import socket
import sys
from typing import Any

import jinja2
import minijinja

from prefold.proxy.errors import NotEncodable
from prefold.proxy.tokens.template_engines import Jinja2, MiniJinja, OverBound, TemplateRefusal

TEXT, REFUSED, NOT_TOLD, OVER, UNREADABLE = b"t", b"r", b"n", b"o", b"u"
REFERENCE, FAST = "jinja2", "minijinja"
LENGTH_BYTES = 8


def main(fd: int, memory_bytes: int) -> None:
    """Serves until its parent is gone."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it would hold prompts
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    with socket.socket(fileno=fd) as parent:
        source: str = pickle.loads(_receive(parent))
        engines: dict[str, Jinja2 | MiniJinja] = {}
        while job := _receive(parent):
            engine, variables, seconds = pickle.loads(job)
            # It ends this process wherever it is, also when no parent is left to do so.
            signal.setitimer(signal.ITIMER_REAL, seconds)
            kind, text = _outcome(engines, engine, source, variables)
            signal.setitimer(signal.ITIMER_REAL, 0)
            answer = kind + text.encode("utf-8", "surrogatepass")
            parent.sendall(len(answer).to_bytes(LENGTH_BYTES) + answer)


def _outcome(
    engines: dict[str, Jinja2 | MiniJinja], engine: str, source: str, variables: dict[str, Any]
) -> tuple[bytes, str]:
    try:
        if engine not in engines:
            engines[engine] = Jinja2(source) if engine == REFERENCE else MiniJinja(source)
    except jinja2.TemplateError as error:
        return UNREADABLE, error.message or ""
    except minijinja.TemplateError as error:
        return UNREADABLE, error.message
    try:
        return TEXT, engines[engine].render(variables)
    except TemplateRefusal:
        return REFUSED, ""
    except OverBound as error:
        return OVER, str(error)
    except NotEncodable as error:
        return NOT_TOLD, str(error)
    except MemoryError:
        return OVER, "the chat template takes too much memory"


def _receive(parent: socket.socket) -> bytes:
    """b"" when the parent is gone."""
    length = int.from_bytes(_exactly(parent, LENGTH_BYTES))
    return _exactly(parent, length)


def _exactly(parent: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        piece = parent.recv(min(length - len(data), 2**20))
        if not piece:
            return b""
        data += piece
    return bytes(data)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
