"""The real proxy on real sockets, in the test's own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from prefold.proxy.serve import Running, running
from prefold.proxy.settings import Backend, Health, Model, Server, Settings

BASE = Settings(
    server=Server(port=0, admin_port=0, drain_s=0.0),
    # Probes are frequent so that tests need not wait for them; passive evidence is what counts.
    health=Health(interval_s=0.2),
)


@asynccontextmanager
async def proxy_before(
    urls: Sequence[str], *, settings: Settings = BASE, models: dict[str, Model] | None = None
) -> AsyncIterator[Running]:
    """A proxy before these backends (named b0, b1, ...), all of them probed once."""
    backends = tuple(Backend(name=f"b{n}", url=url) for n, url in enumerate(urls))
    settings = replace(settings, backends=backends, models=models or settings.models)
    async with running(settings) as server:
        for backend in server.proxy.pool:
            await server.proxy.monitor.probe(backend)
        yield server


async def until(condition: object, *, tries: int = 400) -> None:
    """Poll a state that another task brings about; fails when it never comes."""
    assert callable(condition)
    for _ in range(tries):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the state never came")
