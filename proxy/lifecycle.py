"""How the process ends without losing a request: not ready, still listening, draining, cutting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aiohttp import web

from prefold.proxy.errors import NoBackendAvailable
from prefold.proxy.request_keys import CUT, STARTED

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CUT_S = 1.0
"""For the last events to be written."""


class Lifecycle:
    """Mutable; one for each process."""

    def __init__(self) -> None:
        self.draining = False
        """Readiness is over: balancers are to send no more."""


class InFlight:
    """The requests that have a handler running, each with its task."""

    def __init__(self) -> None:
        self._requests: dict[asyncio.Task[object], web.Request] = {}
        self._none = asyncio.Event()
        self._none.set()

    @web.middleware
    async def counted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None, "a handler runs in a task"
        self._requests[task] = request
        self._none.clear()
        try:
            return await handler(request)
        except asyncio.CancelledError:
            if CUT not in request or STARTED in request:
                raise
            return _ending()
        finally:
            del self._requests[task]
            if not self._requests:
                self._none.set()

    async def drain(self, seconds: float) -> None:
        """Wait for all to end; those that do not are ended as errors, which their clients see."""
        await self._wait_for_none(seconds)
        for task, request in self._requests.items():
            request[CUT] = True
            task.cancel()
        await self._wait_for_none(CUT_S)

    async def _wait_for_none(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._none.wait()


def _ending() -> web.Response:
    error = NoBackendAvailable("This server is ending.", code="ending")
    return web.Response(
        status=error.status,
        body=error.body(),
        headers={"Content-Type": "application/json", **error.headers},
    )
