"""The dashboard on the admin port: one page, its files, and the figures that it asks for.

The page and its files tell nothing and need no key; the figures do. Nothing is loaded from
elsewhere, and the browser is told to allow nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from aiohttp import web

from prefold.measurement.books import Books
from prefold.measurement.prometheus import Metrics
from prefold.proxy.dashboard.figures import figures
from prefold.proxy.dashboard.ledger_view import LedgerView
from prefold.proxy.dashboard.library import MISSING, STATIC, plotly_file
from prefold.proxy.dashboard.series import INTERVAL_S, Series, sample
from prefold.proxy.errors import UnknownPath
from prefold.proxy.settings import Settings

FILES = {
    "style.css": "text/css",
    "charts.js": "text/javascript",
    "tables.js": "text/javascript",
    "dashboard.js": "text/javascript",
}
LIBRARY = "plotly.js"
OPEN_PATHS = frozenset(("/", *(f"/dashboard/{name}" for name in (*FILES, LIBRARY))))
EMPTY_STYLE = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
"""The digest of nothing: the library makes an empty style sheet and fills it by its rules."""
GUARD = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; connect-src 'self'; img-src data:;"
        f" style-src 'self' {EMPTY_STYLE};"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class Shown(Protocol):
    @property
    def settings(self) -> Settings: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def books(self) -> Books: ...


class Dashboard:
    """Mutable: it samples while the admin port is open."""

    def __init__(self, proxy: Shown, described: Callable[[], Sequence[dict[str, object]]]) -> None:
        """`described`: the backends as /backends has them."""
        self._proxy = proxy
        self._described = described
        self._series = Series()
        self._library = plotly_file()
        path = proxy.settings.ledger.path
        self._ledger = LedgerView(Path(path).absolute() if path else None, time.monotonic)

    def install(self, app: web.Application) -> None:
        app.router.add_get("/", self.page)
        app.router.add_get("/dashboard/figures", self.figures)
        app.router.add_get("/dashboard/ledger", self.ledger)
        app.router.add_get("/dashboard/{file}", self.file)
        app.cleanup_ctx.append(self._sampling)

    async def page(self, request: web.Request) -> web.StreamResponse:
        return _file(STATIC / "index.html", "text/html; charset=utf-8")

    async def file(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["file"]
        if name in FILES:
            return _file(STATIC / name, f"{FILES[name]}; charset=utf-8")
        if name == LIBRARY and self._library is not None:
            return _file(self._library, "text/javascript; charset=utf-8")
        raise UnknownPath(MISSING if name == LIBRARY else "Unknown request URL.")

    async def figures(self, request: web.Request) -> web.Response:
        metrics = self._proxy.metrics
        return _json(
            figures(
                books=self._proxy.books,
                series=self._series,
                backends=self._described(),
                gauges=list(metrics.backends()),
                waiting=metrics.waiting(),
                now=time.time(),
            )
        )

    async def ledger(self, request: web.Request) -> web.Response:
        return _json(self._ledger.ask())

    async def _sampling(self, app: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(self._sample(), name="dashboard samples")
        yield
        task.cancel()
        await asyncio.gather(task, self._ledger.close(), return_exceptions=True)

    async def _sample(self) -> None:
        proxy = self._proxy
        while True:
            metrics = proxy.metrics
            self._series.add(
                sample(proxy.books, metrics.backends(), metrics.waiting(), time.time())
            )
            await asyncio.sleep(INTERVAL_S)


def _file(path: Path, content_type: str) -> web.FileResponse:
    return web.FileResponse(path, headers={**GUARD, "Content-Type": content_type})


def _json(value: object) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value),
        headers={**GUARD, "Content-Type": "application/json", "Cache-Control": "no-store"},
    )
