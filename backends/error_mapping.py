"""Foreign errors of an exchange with a backend become ours here, and nowhere else."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp

from prefold.backends.errors import (
    BackendError,
    ConnectFailed,
    ConnectRefused,
    LocalFault,
    UpstreamDisconnected,
    UpstreamTimeout,
)

REFUSED = frozenset(
    (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)
)
OURS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL))


@contextmanager
def mapped_errors() -> Iterator[None]:
    """Whatever aiohttp, the loop or the system raises inside comes out as a BackendError."""
    try:
        yield
    except BackendError:
        raise
    except aiohttp.ClientConnectorError as error:
        raise _connect_error(error.errno)(type(error).__name__) from error
    except aiohttp.ConnectionTimeoutError as error:
        raise ConnectFailed(type(error).__name__) from error
    except TimeoutError as error:
        raise UpstreamTimeout("no bytes from the backend in time") from error
    except (aiohttp.ClientError, ConnectionError, ValueError) as error:
        # ValueError: aiohttp's for a response head it cannot read.
        raise UpstreamDisconnected(type(error).__name__) from error


def _connect_error(number: int | None) -> type[BackendError]:
    if number in REFUSED:
        return ConnectRefused
    return LocalFault if number in OURS else ConnectFailed
