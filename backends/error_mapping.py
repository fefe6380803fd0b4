"""Foreign errors of a connection attempt become ours here, and nowhere else."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from prefold.backends.errors import (
    BackendError,
    ConnectFailed,
    ConnectRefused,
    LocalFault,
    UpstreamTimeout,
)

REFUSED = frozenset(
    (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)
)
OURS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL))


@contextmanager
def mapped_errors() -> Iterator[None]:
    """Whatever the loop or the system raises inside comes out as a BackendError."""
    try:
        yield
    except BackendError:
        raise
    except TimeoutError as error:
        raise UpstreamTimeout("no bytes from the backend in time") from error
    except (OSError, ValueError) as error:
        # Name not found and TLS faults are OSErrors too; ValueError is that of a host name.
        raise _connect_error(error)(_said(error)) from error


def _said(error: OSError | ValueError) -> str:
    if isinstance(error, socket.gaierror):
        return "no address is known for its host"
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its certificate cannot be trusted"
    return "TLS failed" if isinstance(error, ssl.SSLError) else type(error).__name__


def _connect_error(error: OSError | ValueError) -> type[BackendError]:
    number = error.errno if isinstance(error, OSError) else None
    if number in REFUSED:
        return ConnectRefused
    return LocalFault if number in OURS else ConnectFailed
