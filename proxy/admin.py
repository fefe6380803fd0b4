"""The admin port: figures for operators, and backends that come and go. Never for clients, and not
for the pages of a browser except its own: any other could make an operator's browser ask.
"""

from __future__ import annotations

import time
from typing import Annotated, Protocol

import msgspec
from aiohttp import web

from prefold.backends.backend import Backend
from prefold.backends.engine import EngineFacts
from prefold.backends.pool import BackendPool
from prefold.measurement.books import Books
from prefold.measurement.prometheus import Metrics
from prefold.measurement.report import report
from prefold.proxy import settings as given
from prefold.proxy.dashboard.routes import OPEN_PATHS, Dashboard
from prefold.proxy.errors import (
    ApiError,
    BadRequest,
    SettingsError,
    UnknownPath,
)
from prefold.proxy.gate import AdminGate
from prefold.proxy.lifecycle import Lifecycle
from prefold.proxy.openapi import document
from prefold.proxy.reload import Reloader
from prefold.proxy.settings import Settings

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Operated(Protocol):
    """What is shown and changed here: a proxy, or the parent of its workers."""

    @property
    def settings(self) -> Settings: ...
    @property
    def pool(self) -> BackendPool: ...
    @property
    def reloader(self) -> Reloader: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def books(self) -> Books: ...
    @property
    def lifecycle(self) -> Lifecycle: ...

    def tokenizers(self) -> dict[str, dict[str, int]]: ...


class NameTaken(ApiError):
    """There is a backend of this name."""

    status = 409
    kind = "invalid_request_error"
    code = "name_taken"


class NewBackend(msgspec.Struct, forbid_unknown_fields=True):
    """A [[backends]] table, but for what would read this machine's files."""

    url: str
    name: str = ""
    engine: given.EngineName = "auto"
    api_key: str = ""
    pass_client_key: bool = False
    max_in_flight: Annotated[int, msgspec.Meta(ge=1)] = 512
    kv_events: str = ""
    kv_replay: str = ""
    kv_topic: str = ""
    data_parallel_rank: given.Rank = -1
    labels: dict[str, str] = {}


def admin_app(proxy: Operated) -> web.Application:
    handlers = AdminHandlers(proxy)
    app = web.Application(client_max_size=64 * 1024)
    AdminGate(key=proxy.settings.server.admin_key, open_paths=OPEN_PATHS).install(app)
    Dashboard(proxy, handlers.described).install(app)
    app.router.add_get("/metrics", handlers.metrics)
    app.router.add_get("/report", handlers.report)
    app.router.add_get("/openapi.json", handlers.openapi)
    app.router.add_get("/backends", handlers.backends)
    app.router.add_post("/backends", handlers.add)
    app.router.add_delete("/backends/{name:.+}", handlers.remove)
    app.router.add_post("/reload", handlers.reload)
    app.router.add_get("/arms", handlers.arms)
    app.router.add_patch("/arms", handlers.weigh)
    return app


class AdminHandlers:
    def __init__(self, proxy: Operated) -> None:
        self._proxy = proxy

    async def metrics(self, request: web.Request) -> web.Response:
        """With exemplars, where there are traces that they could name, for whom can read them."""
        accepted = "application/openmetrics-text" in request.headers.get("Accept", "")
        exemplars = accepted and bool(self._proxy.settings.tracing.endpoint)
        return web.Response(
            body=self._proxy.metrics.exposition(openmetrics=exemplars),
            headers={"Content-Type": OPENMETRICS if exemplars else TEXT},
        )

    async def report(self, request: web.Request) -> web.Response:
        return _json({**report(self._proxy.books), "tokenizers": self._proxy.tokenizers()})

    async def openapi(self, request: web.Request) -> web.Response:
        """Of both ports."""
        return _json(document(self._proxy.lifecycle.url, str(request.url.origin())))

    async def backends(self, request: web.Request) -> web.Response:
        return _json({"backends": self.described()})

    def described(self) -> list[dict[str, object]]:
        now = time.perf_counter()
        return [_described(backend, now) for backend in self._proxy.pool]

    async def add(self, request: web.Request) -> web.Response:
        try:
            new = msgspec.json.decode(await request.read(), type=NewBackend)
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadRequest(f"No [[backends]] table as JSON: {error}.") from error
        if new.name and new.name in self._proxy.pool:
            raise NameTaken("There is a backend of this name.", param="name")
        try:
            backend = self._proxy.reloader.add(given.Backend(**msgspec.structs.asdict(new)))
        except SettingsError as error:
            raise BadRequest(str(error)) from error
        return _json(_described(backend, time.perf_counter()), 201)

    async def remove(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        try:
            self._proxy.reloader.remove(name)
        except KeyError as error:
            raise UnknownPath(
                "There is no backend of this name.", code="unknown_backend"
            ) from error
        except SettingsError as error:
            raise BadRequest(str(error)) from error
        return _json({"removed": [name]})

    async def arms(self, request: web.Request) -> web.Response:
        return _json(_arms(self._proxy.reloader.settings))

    async def weigh(self, request: web.Request) -> web.Response:
        try:
            weights = msgspec.json.decode(await request.read(), type=dict[str, given.NotNegative])
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadRequest(f"No JSON object of arms' weights: {error}.") from error
        try:
            self._proxy.reloader.weigh(weights)
        except KeyError as error:
            raise UnknownPath("There is no arm of this name.", code="unknown_arm") from error
        except SettingsError as error:
            raise BadRequest(str(error)) from error
        return _json(_arms(self._proxy.reloader.settings))

    async def reload(self, request: web.Request) -> web.Response:
        try:
            done = self._proxy.reloader.reload()
        except SettingsError as error:
            raise BadRequest(str(error)) from error
        return _json(
            {
                "added": [backend.name for backend in done.add],
                "removed": list(done.remove),
                "kept": [backend.name for backend in done.keep],
                "restart_needed_for": list(done.restart),
            }
        )


def _described(backend: Backend, now: float) -> dict[str, object]:
    """Its state now, no credentials. `queued_tokens`: of prompts whose first token is not out."""
    facts = backend.facts
    models = facts.models if facts is not None else ()
    return {
        "name": backend.name,
        "url": backend.url,
        "engine": None if backend.engine is None else backend.engine.name,
        "state": backend.health.state(now),
        "mode": backend.shown_mode,
        "mode_reason": backend.shown_reason,
        "in_flight": backend.load.here,
        "max_in_flight": backend.max_in_flight,
        "queued_tokens": backend.load.queued_here,
        "models": [model.id for model in models],
        "engine_load": None if facts is None else _load(facts),
    }


def _load(facts: EngineFacts) -> dict[str, object]:
    """As the engine said when it was probed last; None what it does not tell."""
    return {
        "running": facts.running,
        "waiting": facts.waiting,
        "kv_usage": facts.kv_usage,
        "preemptions": facts.preemptions,
    }


def _arms(settings: Settings) -> dict[str, object]:
    """`share`: of the conversations, or of the time, of models that all arms are for."""
    total = sum(arm.weight for arm in settings.arms)
    return {
        "arms": [
            {
                "name": arm.name,
                "weight": arm.weight,
                "share": arm.weight / total,
                "compression": arm.compression,
                "labels": arm.labels,
                "models": arm.models,
                "policy": arm.policy,
            }
            for arm in settings.arms
        ]
    }


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(
        status=status,
        body=msgspec.json.encode(value),
        headers={"Content-Type": "application/json"},
    )
