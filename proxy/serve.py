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
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import uvloop

from prefold.proxy.admin import admin_app
from prefold.proxy.app import Proxy, build
from prefold.proxy.discovery.following import following
from prefold.proxy.handlers import DataPort
from prefold.proxy.http.connection import ConnectionRules
from prefold.proxy.http.server import serving
from prefold.proxy.lifecycle import Lifecycle
from prefold.proxy.listener import listening
from prefold.proxy.reload import Load
from prefold.proxy.replicas.alone import Alone
from prefold.proxy.settings import Server, Settings
from prefold.proxy.tls import server_context

log = logging.getLogger(__name__)
YOUNG_OBJECTS = 5000

IDLE_S = 3600.0
"""Balancers keep their connections, and must be the ones that close them."""


def run(settings: Settings, *, exit_with_stdin: bool = False, reload: Load | None = None) -> None:
    """Blocks until SIGINT or SIGTERM, or until stdin ends if `exit_with_stdin`. SIGHUP takes over
    the backends of the settings that `reload` reads."""
    uvloop.run(_serve(settings, exit_with_stdin, reload))


async def _serve(settings: Settings, exit_with_stdin: bool, reload: Load | None) -> None:
    ending = Ending()
    if exit_with_stdin:
        ending.with_stdin()
    async with running(settings, reload=reload) as server:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, server.proxy.reloader.reload_or_log)
        say_where(server.url, server.admin_url)
        freeze()
        await lame_duck(ending, server.proxy.lifecycle, settings.server)


class Ending:
    """Whether the process was told to end: by SIGINT or SIGTERM from now on, or otherwise."""

    def __init__(self) -> None:
        self.patient = True
        self._told = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self._on_signal, number)

    def with_stdin(self) -> None:
        """Also when standard input ends."""
        _when_stdin_ends(lambda: self._loop.call_soon_threadsafe(self.tell))

    def tell(self) -> None:
        self._told.set()

    async def wait(self) -> None:
        await self._told.wait()

    def _on_signal(self, number: signal.Signals) -> None:
        self.patient = number is signal.SIGTERM  # who presses Ctrl-C is waiting
        self.tell()
        for other in (signal.SIGINT, signal.SIGTERM):
            self._loop.remove_signal_handler(other)  # a second one ends it at once


async def lame_duck(ending: Ending, lifecycle: Lifecycle, server: Server) -> None:
    """Returns when the port is to be closed: some time after balancers could see it coming."""
    await ending.wait()
    lifecycle.draining = True
    if ending.patient:
        log.info("not ready any more; listening for %s s more", server.lame_duck_s)
        await asyncio.sleep(server.lame_duck_s)
    log.info("stopping: at most %s s for requests in flight", server.drain_s)


def say_where(url: str, admin_url: str) -> None:
    print(f"prefold listens on {url}, admin on {admin_url}", file=sys.stderr, flush=True)


def freeze() -> None:
    """What lives from here on is small: a full collection costs 22 ms without. Young objects are
    looked through less often than by default (700): records wait for the ledger, and each pass
    found next to nothing, for 5 to 9 us of a request. Not much less: a cycle may hold a body."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)


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
        alone = Alone(settings, time.perf_counter) if settings.redis.url else None
        own = None if alone is None else alone.own
        proxy = await stack.enter_async_context(build(settings, reload, own))
        if alone is not None:
            await stack.enter_async_context(alone.sharing(proxy))
        for backend in proxy.pool:
            proxy.watches.start(backend)
        await stack.enter_async_context(following(settings.discovery, proxy.reloader.discovered))
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
                rules=connection_rules(settings),
                drain_s=server.drain_s,
                tls=tls_of(server),
            )
        )
        proxy.lifecycle.url = url
        yield Running(proxy=proxy, url=url, admin_url=admin_url)


def connection_rules(settings: Settings) -> ConnectionRules:
    return ConnectionRules(
        max_head_bytes=settings.server.max_header_kib * 1024,
        read_s=settings.timeouts.read_s,
        idle_s=IDLE_S,
    )


def tls_of(server: Server) -> ssl.SSLContext | None:
    """Raises SettingsError."""
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
