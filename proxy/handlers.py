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
from prefold.proxy.openai import ChatBody, CompletionBody
from prefold.proxy.relay import STARTED, ClientGone, abort
from prefold.proxy.routes import Passage

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)


class InternalError(ApiError):
    """Only the outermost handler makes one; what happened is in the log, by type and place."""


def data_app(proxy: Proxy) -> web.Application:
    """The data port: what OpenAI clients talk to."""
    app = web.Application(
        middlewares=[_errors_as_objects],
        client_max_size=int(proxy.settings.server.max_body_mib * 2**20),
    )
    own = OwnHandlers(proxy)
    handlers: dict[str, Handler] = {
        "/v1/chat/completions": own.chat_completions,
        "/v1/completions": own.completions,
        "/v1/models": own.models,
        "/v1/models/{model:.+}": own.model,
        "/health": own.health,
        "/ready": own.ready,
    }
    for route in routes.ROUTES:
        if route.passage is Passage.LOAD:
            handler = _passed(proxy, route.path)
        else:
            handler = _refused if route.passage is Passage.REFUSED else handlers[route.path]
        if route.method == "GET":
            app.router.add_get(route.path, handler)  # HEAD too: load balancers ask so
        else:
            app.router.add_route(route.method, route.path, handler)
    return app


class OwnHandlers:
    """What prefold answers itself, or routes by prefix."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def chat_completions(self, request: web.Request) -> web.StreamResponse:
        return await self._proxy.pipeline.run(request, ChatBody)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        return await self._proxy.pipeline.run(request, CompletionBody)

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
        """200 once a backend is ready: before that, traffic could not be served."""
        pool = self._proxy.pool
        ready = [backend.name for backend in pool if backend.health.reachable]
        if not ready:
            return _json({"status": "waiting", "backends": []}, 503)
        return _json({"status": "ready", "backends": ready})

    def _cards(self) -> dict[str, dict[str, Any]]:
        return self._proxy.catalog.cards(self._proxy.pool.models())


def admin_app(proxy: Proxy) -> web.Application:
    """The admin port: figures for operators, never for clients."""

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(
            body=proxy.metrics.exposition(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def report(request: web.Request) -> web.Response:
        return _json({**proxy.report.as_dict(), "tokenizers": _tokenizers(proxy)})

    app = web.Application(middlewares=[_errors_as_objects])
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/report", report)
    return app


@web.middleware
async def _errors_as_objects(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors before anything was sent become an answer; after that the connection is dropped."""
    try:
        return await handler(request)
    except ApiError as error:
        return _error(error)
    except ClientGone:
        return web.Response(status=499)  # nobody will read it
    except web.HTTPNotFound:
        return _error(UnknownPath("Unknown request URL."))
    except web.HTTPMethodNotAllowed:
        return _error(MethodNotAllowed("Not allowed with this method."))
    except web.HTTPRequestEntityTooLarge:
        return _error(TooLarge("The request body is too large."))
    except web.HTTPException as error:
        return _error(BadRequest(error.reason or "Bad request."))
    except Exception as error:  # noqa: BLE001 - the outermost boundary: no stack trace goes out
        # Places only: an exception's own text may quote what it could not handle.
        where = "".join(traceback.format_tb(error.__traceback__))
        log.error("unexpected %s\n%s", type(error).__name__, where)
        if STARTED in request:
            abort(request)
        return _error(InternalError("Internal error."))


def _error(error: ApiError) -> web.Response:
    return web.Response(
        status=error.status,
        body=error.body(),
        headers={"Content-Type": "application/json", **error.headers},
    )


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(
        status=status,
        body=msgspec.json.encode(value),
        headers={"Content-Type": "application/json"},
    )


def _tokenizers(proxy: Proxy) -> dict[str, dict[str, int]]:
    return {
        model: encoder.stats()
        for model in proxy.pool.models()
        if (encoder := proxy.catalog.encoder(model)) is not None
    }


def _passed(proxy: Proxy, path: str) -> Handler:
    async def passed(request: web.Request) -> web.StreamResponse:
        return await proxy.passthrough.run(request, path)

    return passed


async def _refused(request: web.Request) -> web.StreamResponse:
    raise NotSupported("prefold does not serve this path.")
