"""What can go wrong between us and an LLM server; error_mapping.py makes these of foreign ones.

BackendError
  ConnectFailed         no connection: TLS, name not found, connect timeout
    ConnectRefused      nothing listens there, or the host cannot be reached
  LocalFault            no connection for a reason of our own: no descriptors, no ports
  UpstreamTimeout       connected, then silence for longer than allowed
  UpstreamDisconnected  the connection ended before the response did, or broke its framing
NoRoom                  no backend was asked: all that could serve the request have enough to do
  QueueFull             and enough requests wait already
  QueueTimeout          and it has waited as long as it may
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


class NoRoom(Exception):
    """Root: a request did not get a place. It says nothing of any backend's health."""


class QueueFull(NoRoom):
    pass


class QueueTimeout(NoRoom):
    pass
