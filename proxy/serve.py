"""`prefold serve`: both ports, until a signal says stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import uvloop

from prefold.proxy.admin import admin_app
from prefold.proxy.app import Proxy, build
from prefold.proxy.handlers import DataPort
from prefold.proxy.http.connection import ConnectionRules
from prefold.proxy.http.server import serving
from prefold.proxy.listener import listening
from prefold.proxy.reload import Load
from prefold.proxy.settings import Server, Settings
from prefold.proxy.tls import server_context

log = logging.getLogger(__name__)

IDLE_S = 3600.0
"""Balancers keep their connections, and must be the ones that close them."""


def run(settings: Settings, *, exit_with_stdin: bool = False, reload: Load | None = None) -> None:
    """Blocks until SIGINT or SIGTERM, or until stdin ends if `exit_with_stdin`. SIGHUP takes over
    the backends of the settings that `reload` reads."""
    uvloop.run(_serve(settings, exit_with_stdin, reload))


async def _serve(settings: Settings, exit_with_stdin: bool, reload: Load | None) -> None:
    stop = asyncio.Event()
    patient = True

    def on_signal(number: signal.Signals) -> None:
        nonlocal patient
        patient = number is signal.SIGTERM  # who presses Ctrl-C is waiting
        stop.set()
        for other in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(other)  # a second one ends it at once

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    if exit_with_stdin:
        _when_stdin_ends(lambda: loop.call_soon_threadsafe(stop.set))
    async with running(settings, reload=reload) as server:
        loop.add_signal_handler(signal.SIGHUP, server.proxy.reloader.reload_or_log)
        print(
            f"prefold listens on {server.url}, admin on {server.admin_url}",
            file=sys.stderr,
            flush=True,
        )
        gc.collect()
        gc.freeze()  # what lives from here on is small: a full collection costs 22 ms without
        await stop.wait()
        server.proxy.lifecycle.draining = True
        if patient:
            log.info("not ready any more; listening for %s s more", settings.server.lame_duck_s)
            await asyncio.sleep(settings.server.lame_duck_s)
        log.info("stopping: at most %s s for requests in flight", settings.server.drain_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    proxy: Proxy
    url: str
    admin_url: str


@asynccontextmanager
async def running(settings: Settings, *, reload: Load | None = None) -> AsyncIterator[Running]:
    """Both ports listening and every backend watched; raises OSError if a port is taken."""
    server = settings.server
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(build(settings, reload))
        for backend in proxy.pool:
            proxy.watches.start(backend)
        port = DataPort(proxy)
        admin_url = await stack.enter_async_context(
            listening(admin_app(proxy), server.admin_host, server.admin_port)
        )
        url = await stack.enter_async_context(
            serving(
                port.serve,
                port.tell,
                server.host,
                server.port,
                rules=ConnectionRules(
                    max_head_bytes=server.max_header_kib * 1024,
                    read_s=settings.timeouts.read_s,
                    idle_s=IDLE_S,
                ),
                drain_s=server.drain_s,
                tls=_tls(server),
            )
        )
        proxy.lifecycle.url = url
        yield Running(proxy=proxy, url=url, admin_url=admin_url)


def _tls(server: Server) -> ssl.SSLContext | None:
    if not server.tls_certificate:
        return None
    return server_context(Path(server.tls_certificate), Path(server.tls_key))


def _when_stdin_ends(then: Callable[[], object]) -> None:
    """A parent that holds the other end of the pipe is gone when it ends, SIGKILL included."""

    def wait() -> None:
        # Not sys.stdin: a thread inside its lock would break the interpreter's shutdown.
        with suppress(OSError):  # it was closed from the start
            while os.read(0, 4096):
                pass
        then()

    threading.Thread(target=wait, name="stdin watch", daemon=True).start()
