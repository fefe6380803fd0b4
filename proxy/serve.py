"""`prefold serve`: both ports, until a signal says stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

import uvloop
from aiohttp import web
from aiohttp.typedefs import Middleware

from prefold.proxy.app import Proxy, build, watching
from prefold.proxy.handlers import Handler, admin_app, data_app
from prefold.proxy.settings import Settings

log = logging.getLogger(__name__)
MAX_FIELD_BYTES = 64 * 1024


def run(settings: Settings, *, exit_with_stdin: bool = False) -> None:
    """Blocks until SIGINT or SIGTERM, or until stdin ends if `exit_with_stdin`."""
    uvloop.run(_serve(settings, exit_with_stdin))


async def _serve(settings: Settings, exit_with_stdin: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        stop.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)  # a second one ends it at once

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    if exit_with_stdin:
        _when_stdin_ends(lambda: loop.call_soon_threadsafe(stop.set))
    async with running(settings) as server:
        print(
            f"prefold listens on {server.url}, admin on {server.admin_url}",
            file=sys.stderr,
            flush=True,
        )
        gc.collect()
        gc.freeze()  # what lives from here on is small: a full collection costs 22 ms without
        await stop.wait()
        log.info("stopping: at most %s s for requests in flight", settings.server.drain_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    proxy: Proxy
    url: str
    admin_url: str


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Running]:
    """Both ports listening and every backend watched; raises OSError if a port is taken."""
    server = settings.server
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(build(settings))
        await stack.enter_async_context(watching(proxy))
        yield Running(
            proxy=proxy,
            admin_url=await stack.enter_async_context(
                _listening(admin_app(proxy), server.admin_host, server.admin_port, 1.0)
            ),
            url=await stack.enter_async_context(
                _listening(data_app(proxy), server.host, server.port, server.drain_s)
            ),
        )


@asynccontextmanager
async def _listening(
    app: web.Application, host: str, port: int, drain_s: float
) -> AsyncIterator[str]:
    """A listening server; on exit it stops accepting, then waits for requests in flight."""
    in_flight = InFlight()
    app.middlewares.insert(0, in_flight.counted)
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=_without_details(),
        handler_cancellation=True,  # off by default: upstreams would run on for clients that left
        shutdown_timeout=0.0,
        max_field_size=MAX_FIELD_BYTES,
        max_line_size=MAX_FIELD_BYTES,
    )
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    try:
        await site.start()
        yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        # Not aiohttp's own waiting, which takes its time-out twice.
        await site.stop()
        await in_flight.wait_for_none(drain_s)
        await runner.cleanup()


class InFlight:
    """Counts the requests that have a handler running."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    @property
    def counted(self) -> Middleware:
        @web.middleware
        async def counted(request: web.Request, handler: Handler) -> web.StreamResponse:
            self._count += 1
            self._none.clear()
            try:
                return await handler(request)
            finally:
                self._count -= 1
                if not self._count:
                    self._none.set()

        return counted

    async def wait_for_none(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._none.wait()


def _without_details() -> logging.Logger:
    """aiohttp quotes what it cannot read, which may be a key or a prompt."""

    def drop(record: logging.LogRecord) -> bool:
        record.msg, record.args = "a request could not be read or answered", ()
        record.exc_info = None
        return True

    quiet = logging.getLogger("prefold.http")
    if not quiet.filters:
        quiet.addFilter(drop)
    return quiet


def _when_stdin_ends(then: Callable[[], object]) -> None:
    """A parent that holds the other end of the pipe is gone when it ends, SIGKILL included."""

    def wait() -> None:
        # Not sys.stdin: a thread inside its lock would break the interpreter's shutdown.
        with suppress(OSError):  # it was closed from the start
            while os.read(0, 4096):
                pass
        then()

    threading.Thread(target=wait, name="stdin watch", daemon=True).start()
