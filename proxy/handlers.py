"""The data port's surface: routes to parts, exceptions to error objects. No logic of its own."""

from __future__ import annotations

import asyncio
import logging
import traceback
from typing import Any

import msgspec
from multidict import CIMultiDict

from prefold.proxy import routes
from prefold.proxy.app import Proxy
from prefold.proxy.errors import ApiError, ModelNotFound, NoBackendAvailable, NotSupported
from prefold.proxy.http.answer import ClientGone
from prefold.proxy.http.request import Request
from prefold.proxy.http.table import Handler, Table
from prefold.proxy.pipeline import Pipeline
from prefold.proxy.protocol import protocol_of
from prefold.proxy.routes import Passage, Route

log = logging.getLogger(__name__)


class InternalError(ApiError):
    """Only the outermost handler makes one; what happened is in the log, by type and place."""


class DataPort:
    """What OpenAI clients talk to."""

    def __init__(self, proxy: Proxy) -> None:
        self._table = table(proxy)
        self._gate = proxy.gate

    async def serve(self, request: Request) -> None:
        """Errors before anything was sent become an answer; after that the connection is cut."""
        self._gate.begin(request)
        try:
            preflight = self._gate.preflight(request)
            if preflight is not None:
                request.answer.begin(204, preflight, None)
                request.answer.end()
                return
            key = self._gate.admit(request)
            try:
                await self._table.find(request)(request)
            finally:
                self._gate.release(key)
        except ApiError as error:
            self.tell(request, error)
        except ClientGone:
            request.answer.reset()
        except asyncio.CancelledError:
            if not request.cut or request.answer.begun:
                raise
            self.tell(request, NoBackendAvailable("This server is ending.", code="ending"))
        except Exception as error:  # noqa: BLE001 - the outermost boundary: no stack trace goes out
            # Places only: an exception's own text may quote what it could not handle.
            where = "".join(traceback.format_tb(error.__traceback__))
            log.error("unexpected %s\n%s", type(error).__name__, where)
            self.tell(request, InternalError("Internal error."))

    def tell(self, request: Request, error: ApiError) -> None:
        answer = request.answer
        if not request.request_id:  # it could not be read, so it did not come by the gate
            self._gate.begin(request)
        if answer.begun:
            answer.abort()
        elif answer.open:
            body = protocol_of(request.path).wrong(error)
            headers = CIMultiDict({"Content-Type": "application/json", **error.headers})
            answer.begin(error.status, headers, len(body))
            answer.end(body)


def table(proxy: Proxy) -> Table:
    own = OwnHandlers(proxy)
    made = Table()
    for route in routes.ROUTES:
        handler = own.by_path.get(route.path) or _handler(proxy.pipeline, route)
        forwarded = route.passage is not Passage.OWN
        made.add(route.method, route.path, handler, forwarded=forwarded)
    return made


def _handler(pipeline: Pipeline, route: Route) -> Handler:
    async def by_prefix(request: Request) -> None:
        assert route.body is not None, "a path that is routed by prefix has a kind of body"
        await pipeline.by_prefix(request, route.body)

    async def by_load(request: Request) -> None:
        await pipeline.by_load(request, route.path)

    async def by_id(request: Request) -> None:
        await pipeline.by_id(request, route.path)

    async def stateful(request: Request) -> None:
        await pipeline.stateful(request, route.path.partition("{")[0])

    return {
        Passage.PREFIX: by_prefix,
        Passage.LOAD: by_load,
        Passage.PINNED: by_id,
        Passage.STATEFUL: stateful,
    }.get(route.passage, _refused)


class OwnHandlers:
    """What prefold answers itself."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.by_path: dict[str, Handler] = {
            "/v1/models": self.models,
            "/v1/models/{model:.+}": self.model,
            "/health": self.health,
            "/ready": self.ready,
        }

    async def models(self, request: Request) -> None:
        _json(request, {"object": "list", "data": list(self._cards().values())})

    async def model(self, request: Request) -> None:
        card = self._cards().get(request.params["model"])
        if card is None:
            raise ModelNotFound("The requested model does not exist.", param="model")
        _json(request, card)

    async def health(self, request: Request) -> None:
        """The process lives."""
        _json(request, {"status": "ok"})

    async def ready(self, request: Request) -> None:
        """200 while a backend is ready, and until the process is told to end."""
        if self._proxy.lifecycle.draining:
            _json(request, {"status": "draining", "backends": []}, 503)
            return
        ready = [backend.name for backend in self._proxy.pool if backend.health.reachable]
        if not ready:
            _json(request, {"status": "waiting", "backends": []}, 503)
            return
        _json(request, {"status": "ready", "backends": ready})

    def _cards(self) -> dict[str, dict[str, Any]]:
        return self._proxy.catalog.cards(self._proxy.pool.models())


def _json(request: Request, value: object, status: int = 200) -> None:
    body = msgspec.json.encode(value)
    headers = CIMultiDict({"Content-Type": "application/json"})
    request.answer.begin(status, headers, len(body))
    request.answer.end(body)


async def _refused(request: Request) -> None:
    raise NotSupported("prefold does not serve this path.")
