"""The data port that several processes listen on at once (SO_REUSEPORT)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from prefold.proxy.errors import SettingsError

Address = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]


@contextmanager
def reserved(host: str, port: int) -> Iterator[int]:
    """The port, found if 0, and ours as long as the context is open: bound but not listening, so
    that no connection comes here. Raises OSError if somebody listens on it, SettingsError where
    the system cannot share a port."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise SettingsError("server.workers: this system cannot share a port among processes")
    with ExitStack() as stack:
        if port:
            # Who shares the port by the same option would not be an error otherwise.
            with ExitStack() as trial:
                for family, address in _addresses(host, port):
                    trial.enter_context(_bound(family, address, shared=False))
        if not port:
            [(family, address), *_] = _addresses(host, 0)
            port = stack.enter_context(_bound(family, address, shared=True)).getsockname()[1]
        for family, address in _addresses(host, port):
            stack.enter_context(_bound(family, address, shared=True))
        yield port


def _addresses(host: str, port: int) -> list[Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return [(family, address) for family, _, _, _, address in found]  # type: ignore[misc]


def _bound(family: socket.AddressFamily, address: object, *, shared: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)  # type: ignore[arg-type]
    except BaseException:
        made.close()
        raise
    return made
