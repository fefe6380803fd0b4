"""The HTTP surface: routes to parts, exceptions to OpenAI's error object. No logic of its own."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable

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
from prefold.proxy.relay import ClientGone
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
    own: dict[str, Handler] = {
        "/v1/chat/completions": lambda request: proxy.pipeline.run(request, ChatBody),
        "/v1/completions": lambda request: proxy.pipeline.run(request, CompletionBody),
        "/v1/models": lambda request: _models(proxy),
        "/v1/models/{model:.+}": lambda request: _model(proxy, request.match_info["model"]),
        "/health": lambda request: _json({"status": "ok"}),
        "/ready": lambda request: _ready(proxy),
    }
    for route in routes.ROUTES:
        if route.passage is Passage.LOAD:
            app.router.add_route(route.method, route.path, _passed(proxy, route.path))
        elif route.passage is Passage.REFUSED:
            app.router.add_route(route.method, route.path, _refused)
        else:
            app.router.add_route(route.method, route.path, own[route.path])
    return app


def admin_app(proxy: Proxy) -> web.Application:
    """The admin port: figures for operators, never for clients."""

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(
            body=proxy.metrics.exposition(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def report(request: web.Request) -> web.Response:
        return await _json({**proxy.report.as_dict(), "tokenizers": _tokenizers(proxy)})

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
        return _error(InternalError("Internal error."))


def _error(error: ApiError) -> web.Response:
    return web.Response(
        status=error.status,
        body=error.body(),
        headers={"Content-Type": "application/json", **error.headers},
    )


async def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(
        status=status,
        body=msgspec.json.encode(value),
        headers={"Content-Type": "application/json"},
    )


async def _models(proxy: Proxy) -> web.Response:
    names = proxy.catalog.names(proxy.pool.models())
    return await _json({"object": "list", "data": [_card(name) for name in names]})


async def _model(proxy: Proxy, name: str) -> web.Response:
    if name not in proxy.catalog.names(proxy.pool.models()):
        raise ModelNotFound("The requested model does not exist.", param="model")
    return await _json(_card(name))


def _card(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "prefold"}


async def _ready(proxy: Proxy) -> web.Response:
    """200 once a backend is, so that traffic is not sent here before it can be served."""
    ready = [backend.name for backend in proxy.pool if backend.health.reachable]
    status = 200 if ready else 503
    return await _json({"status": "ready" if ready else "waiting", "backends": ready}, status)


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
