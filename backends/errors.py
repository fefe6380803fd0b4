"""What can go wrong between us and an LLM server; foreign exceptions are mapped in client.py.

BackendError
  ConnectFailed         no connection: TLS, name not found, connect timeout
    ConnectRefused      nothing listens there, or the host cannot be reached
  LocalFault            no connection for a reason of our own: no descriptors, no ports
  UpstreamTimeout       connected, then silence for longer than allowed
  UpstreamDisconnected  the connection ended before the response did, or broke its framing
"""

from __future__ import annotations


class BackendError(Exception):
    """Root: the exchange with a backend failed. An HTTP error status is no such failure."""


class ConnectFailed(BackendError):
    pass


class ConnectRefused(ConnectFailed):
    pass


class LocalFault(BackendError):
    pass


class UpstreamTimeout(BackendError):
    pass


class UpstreamDisconnected(BackendError):
    pass


class QueueFull(BackendError):
    pass


class QueueTimeout(BackendError):
    pass
