"""The admin port: figures for operators, never for clients."""

from __future__ import annotations

import msgspec
from aiohttp import web

from prefold.proxy.app import Proxy
from prefold.proxy.handlers import errors_as_objects


def admin_app(proxy: Proxy) -> web.Application:
    """The admin port: figures for operators, never for clients."""

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(
            body=proxy.metrics.exposition(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def report(request: web.Request) -> web.Response:
        return _json({**proxy.report.as_dict(), "tokenizers": _tokenizers(proxy)})

    app = web.Application(middlewares=[errors_as_objects])
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/report", report)
    return app


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
