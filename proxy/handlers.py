"""The HTTP surface: routes to parts, exceptions to OpenAI's error object. No logic of its own."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from prefold.proxy import routes
from prefold.proxy.app import Proxy
from prefold.proxy.errors import (
    ApiError,
    BadRequest,
    MethodNotAllowed,
    ModelNotFound,
    NotSupported,
    TooLarge,
    UnknownPath,
)
from prefold.proxy.pipeline import Pipeline
from prefold.proxy.protocol import protocol_of
from prefold.proxy.relay import ClientGone, abort
from prefold.proxy.request_keys import STARTED
from prefold.proxy.routes import Passage, Route

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)


class InternalError(ApiError):
    """Only the outermost handler makes one; what happened is in the log, by type and place."""


def data_app(proxy: Proxy) -> web.Application:
    """The data port: what OpenAI clients talk to."""
    app = web.Application(
        middlewares=[errors_as_objects],
        client_max_size=int(proxy.settings.server.max_body_mib * 2**20),
    )
    own = OwnHandlers(proxy)
    handlers: dict[str, Handler] = {
        "/v1/models": own.models,
        "/v1/models/{model:.+}": own.model,
        "/health": own.health,
        "/ready": own.ready,
    }
    for route in routes.ROUTES:
        handler = handlers.get(route.path) or _handler(proxy.pipeline, route)
        if route.method == "GET" and route.passage is Passage.OWN:
            app.router.add_get(route.path, handler)  # HEAD too: load balancers ask so
        else:
            app.router.add_route(route.method, route.path, handler)
    return app


def _handler(pipeline: Pipeline, route: Route) -> Handler:
    async def by_prefix(request: web.Request) -> web.StreamResponse:
        assert route.body is not None, "a path that is routed by prefix has a kind of body"
        return await pipeline.by_prefix(request, route.body)

    async def by_load(request: web.Request) -> web.StreamResponse:
        return await pipeline.by_load(request, route.path)

    async def by_id(request: web.Request) -> web.StreamResponse:
        return await pipeline.by_id(request, route.path)

    async def stateful(request: web.Request) -> web.StreamResponse:
        return await pipeline.stateful(request, route.path.partition("{")[0])

    return {
        Passage.PREFIX: by_prefix,
        Passage.LOAD: by_load,
        Passage.PINNED: by_id,
        Passage.STATEFUL: stateful,
    }.get(route.passage, _refused)


class OwnHandlers:
    """What prefold answers itself, or routes by prefix."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def models(self, request: web.Request) -> web.Response:
        return _json({"object": "list", "data": list(self._cards().values())})

    async def model(self, request: web.Request) -> web.Response:
        card = self._cards().get(request.match_info["model"])
        if card is None:
            raise ModelNotFound("The requested model does not exist.", param="model")
        return _json(card)

    async def health(self, request: web.Request) -> web.Response:
        """The process lives."""
        return _json({"status": "ok"})

    async def ready(self, request: web.Request) -> web.Response:
        """200 while a backend is ready, and until the process is told to end."""
        if self._proxy.lifecycle.draining:
            return _json({"status": "draining", "backends": []}, 503)
        pool = self._proxy.pool
        ready = [backend.name for backend in pool if backend.health.reachable]
        if not ready:
            return _json({"status": "waiting", "backends": []}, 503)
        return _json({"status": "ready", "backends": ready})

    def _cards(self) -> dict[str, dict[str, Any]]:
        return self._proxy.catalog.cards(self._proxy.pool.models())


@web.middleware
async def errors_as_objects(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors before anything was sent become an answer; after that the connection is dropped."""
    try:
        return await handler(request)
    except ApiError as error:
        if STARTED in request:
            abort(request)
        return error_response(request, error)
    except ClientGone:
        return web.Response(status=499)  # nobody will read it
    except web.HTTPNotFound:
        return error_response(request, UnknownPath("Unknown request URL."))
    except web.HTTPMethodNotAllowed:
        return error_response(request, MethodNotAllowed("Not allowed with this method."))
    except web.HTTPRequestEntityTooLarge:
        return error_response(request, TooLarge("The request body is too large."))
    except web.HTTPException as error:
        return error_response(request, BadRequest(error.reason or "Bad request."))
    except Exception as error:  # noqa: BLE001 - the outermost boundary: no stack trace goes out
        # Places only: an exception's own text may quote what it could not handle.
        where = "".join(traceback.format_tb(error.__traceback__))
        log.error("unexpected %s\n%s", type(error).__name__, where)
        if STARTED in request:
            abort(request)
        return error_response(request, InternalError("Internal error."))


def error_response(request: web.Request, error: ApiError) -> web.Response:
    return web.Response(
        status=error.status,
        body=protocol_of(request.path).wrong(error),
        headers={"Content-Type": "application/json", **error.headers},
    )


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(
        status=status,
        body=msgspec.json.encode(value),
        headers={"Content-Type": "application/json"},
    )


async def _refused(request: web.Request) -> web.StreamResponse:
    raise NotSupported("prefold does not serve this path.")
