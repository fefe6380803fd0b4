"""A listening port: aiohttp's server with the limits, and the errors, of an OpenAI endpoint."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from prefold.proxy.errors import BadRequest, HeaderTooLong
from prefold.proxy.lifecycle import InFlight

CLOSE_S = 0.1
"""For connections to close; requests in flight were waited for before."""


class Connection(web.RequestHandler):
    """What cannot be read as HTTP is answered with an error object, as everything else is."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        super().handle_error(request, status, exc, message)  # logs; raises if an answer has begun
        error = (
            HeaderTooLong("A header line of the request is too long.")
            if isinstance(exc, LineTooLong)
            else BadRequest("The request could not be read.")
        )
        response = web.Response(
            status=error.status, body=error.body(), headers={"Content-Type": "application/json"}
        )
        response.force_close()
        return response


@asynccontextmanager
async def listening(
    app: web.Application,
    host: str,
    port: int,
    *,
    max_field_bytes: int,
    drain_s: float,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[str]:
    """The URL of a listening server; on exit it stops accepting, then waits for requests in flight
    and ends the rest. Raises OSError if the port is taken."""
    in_flight = InFlight()
    app.middlewares.insert(0, in_flight.counted)
    # Cancelled handlers: upstreams would run on for clients that left.
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=CLOSE_S)
    await runner.setup()
    manager = runner.server
    assert manager is not None, "setup makes it"
    loop = asyncio.get_running_loop()
    quiet = _without_details()

    def connection() -> Connection:
        return Connection(
            manager,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # its own documentation says so
            logger=quiet,
            max_field_size=max_field_bytes,
            max_line_size=max_field_bytes,
        )

    try:
        server = await loop.create_server(connection, host, port, ssl=tls, backlog=1024)
        try:
            bound = server.sockets[0].getsockname()
            yield f"{'https' if tls else 'http'}://{host}:{bound[1]}"
        finally:
            server.close()
            await in_flight.drain(drain_s)
    finally:
        await runner.cleanup()


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
