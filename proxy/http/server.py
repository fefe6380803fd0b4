"""A listening port of the lean kind: what clients of the data port talk to."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from prefold.proxy.errors import ApiError
from prefold.proxy.http.answer import Clock
from prefold.proxy.http.connection import Connection, ConnectionRules, Live
from prefold.proxy.http.request import Request

BACKLOG = 1024
CUT_S = 1.0
"""For the last events to be written."""


@asynccontextmanager
async def serving(
    serve: Callable[[Request], Awaitable[None]],
    tell: Callable[[Request, ApiError], None],
    host: str,
    port: int,
    *,
    rules: ConnectionRules,
    drain_s: float,
    tls: ssl.SSLContext | None = None,
    reuse_port: bool = False,
) -> AsyncIterator[str]:
    """The URL of a listening server; on exit it stops accepting, then waits for requests in flight
    and ends the rest as errors. `reuse_port`: other processes listen there too. Raises OSError if
    the port is taken."""
    live = Live()
    clock = Clock()
    loop = asyncio.get_running_loop()

    def connection() -> Connection:
        return Connection(serve=serve, tell=tell, rules=rules, clock=clock, live=live)

    server = await loop.create_server(
        connection, host, port, ssl=tls, backlog=BACKLOG, reuse_port=reuse_port or None
    )
    try:
        bound = server.sockets[0].getsockname()
        yield f"{'https' if tls else 'http'}://{host}:{bound[1]}"
    finally:
        server.close()
        for one in list(live.connections):
            one.close_if_idle()
        await _until_idle(live, drain_s)
        for one in list(live.connections):
            one.cut()
        await _until_idle(live, CUT_S)
        await asyncio.sleep(0)  # for closed transports to say so
        for one in list(live.connections):
            one.abort()


async def _until_idle(live: Live, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await live.idle.wait()
