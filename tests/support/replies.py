"""An engine that answers each path with a reply made beforehand, as an adapter asks it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from prefold.backends.client import Client
from prefold.backends.engine import Endpoint
from prefold.backends.http1 import Limits

FIXTURES = Path(__file__).parent.parent / "fixtures" / "engines"


def fixture(name: str) -> dict[str, Any]:
    """Replies by path; where they come from is told beside them."""
    replies: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text())["replies"]
    return replies


@asynccontextmanager
async def server(
    replies: Mapping[str, Any], *, rank: int | None = None, asked: list[str] | None = None
) -> AsyncIterator[Endpoint]:
    """A number is a status, a text is a body as it is, all else is JSON; other paths are 404.
    `asked` gets the paths in their order."""

    async def answer(request: web.Request) -> web.Response:
        if asked is not None:
            asked.append(request.path)
        reply = replies.get(request.path)
        if reply is None:
            return web.Response(status=404, text="File Not Found")
        if isinstance(reply, int):
            return web.Response(status=reply, text="{}")
        return web.Response(text=reply if isinstance(reply, str) else json.dumps(reply))

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with Client(Limits()) as client:
            url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield Endpoint(client, url, {}, 5.0, rank=rank)
    finally:
        await runner.cleanup()
