"""The admin port's server: aiohttp's, with errors as objects. The data port has one of its own,
`http/`, since every token passes through it."""

from __future__ import annotations

import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from prefold.proxy.errors import ApiError, BadRequest, MethodNotAllowed, TooLarge, UnknownPath
from prefold.proxy.handlers import InternalError

CLOSE_S = 0.1
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)


@asynccontextmanager
async def listening(app: web.Application, host: str, port: int) -> AsyncIterator[str]:
    """The URL of a listening server; raises OSError if the port is taken."""
    app.middlewares.insert(0, errors_as_objects)
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=_without_details(),
        handler_cancellation=True,
        shutdown_timeout=CLOSE_S,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@web.middleware
async def errors_as_objects(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Whatever goes wrong becomes OpenAI's error object."""
    try:
        return await handler(request)
    except ApiError as error:
        return _told(error)
    except web.HTTPNotFound:
        return _told(UnknownPath("Unknown request URL."))
    except web.HTTPMethodNotAllowed:
        return _told(MethodNotAllowed("Not allowed with this method."))
    except web.HTTPRequestEntityTooLarge:
        return _told(TooLarge("The request body is too large."))
    except web.HTTPException as error:
        return _told(BadRequest(error.reason or "Bad request."))
    except Exception as error:  # noqa: BLE001 - the outermost boundary: no stack trace goes out
        where = "".join(traceback.format_tb(error.__traceback__))
        log.error("unexpected %s\n%s", type(error).__name__, where)
        return _told(InternalError("Internal error."))


def _told(error: ApiError) -> web.Response:
    headers = {"Content-Type": "application/json", **error.headers}
    return web.Response(status=error.status, body=error.body(), headers=headers)


def _without_details() -> logging.Logger:
    """aiohttp quotes what it cannot read, which may be a key."""

    def drop(record: logging.LogRecord) -> bool:
        record.msg, record.args = "a request could not be read or answered", ()
        record.exc_info = None
        return True

    quiet = logging.getLogger("prefold.http")
    if not quiet.filters:
        quiet.addFilter(drop)
    return quiet
