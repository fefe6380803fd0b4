"""Failures of commands, in words for whoever typed them: what is wrong, where, what to type next.
None quotes a key.
"""

from __future__ import annotations

import errno
import os
import socket

import aiohttp


def cannot_listen(error: OSError, *, host: str, port: int, admin_host: str, admin_port: int) -> str:
    """Of a proxy with two ports; where it was the admin port, the error says so in its text."""
    if port != admin_port and f", {admin_port})" in str(error):
        return cannot_listen_at(error, admin_host, admin_port, "admin-port")
    return cannot_listen_at(error, host, port)


def cannot_listen_at(error: OSError, host: str, port: int, option: str = "port") -> str:
    where = f"cannot listen on {host}:{port}"
    if isinstance(error, socket.gaierror):
        return f"{where}: no address is known for {host!r}"
    match error.errno:
        case errno.EADDRINUSE:
            return f"{where}: something else does; give another --{option} (0 picks a free one)"
        case errno.EADDRNOTAVAIL:
            return f"{where}: this machine does not have that address; 0.0.0.0 is all of its own"
        case errno.EACCES:
            return f"{where}: not allowed; ports from 1024 on are open to everybody"
    return f"{where}: {os.strerror(error.errno) if error.errno else type(error).__name__}"


def no_answer(url: str, error: Exception) -> str:
    """Of a server that was asked at `url`."""
    match error:
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return f"{url}: expected http://HOST:PORT"
        case aiohttp.ClientConnectorDNSError():
            return f"{url}: no address is known for {error.host!r}"
        case aiohttp.ClientSSLError():
            return f"{url}: no TLS that can be trusted; without TLS it is http://"
        case aiohttp.ClientConnectorError() if error.os_error.errno == errno.ECONNREFUSED:
            return f"{url}: nothing listens there; is it running, is it this port?"
        case aiohttp.ClientConnectorError():
            return f"{url}: cannot connect ({error.os_error.strerror or 'no route'})"
        case TimeoutError():
            return f"{url}: no answer in time"
        case aiohttp.ClientError():
            return f"{url}: no answer that could be read ({type(error).__name__})"
    return f"{url}: {type(error).__name__}"
