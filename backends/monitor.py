"""The probe loop: keeps a backend's facts fresh and tells when it becomes ready or goes away; and
the tasks that run it, one for each backend.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from prefold.backends.backend import Backend
from prefold.backends.client import Client
from prefold.backends.detect import detect
from prefold.backends.engine import Endpoint, EngineFacts, began_anew
from prefold.backends.errors import BackendError, ConnectRefused

log = logging.getLogger(__name__)
TICKS = 5


class Monitor:
    """Probes backends; one `watch` task for each.

    `on_ready(backend, facts, restarted)` runs whenever a backend answers after it was away, or
    lists other models or another capacity than before, or began anew unseen, and before it may take
    requests; again with each probe until it returns True. `restarted`: it may have lost its cache.
    The clock is the one that leases are released by.
    """

    def __init__(
        self,
        *,
        client: Client,
        interval_s: float,
        timeout_s: float,
        on_ready: Callable[[Backend, EngineFacts, bool], Awaitable[bool]],
        clock: Callable[[], float] = time.perf_counter,
        quiet: bool = False,
    ) -> None:
        """`quiet`: other processes probe the same backends, and say what they find."""
        self._client = client
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._on_ready = on_ready
        self._clock = clock
        self._log_level = logging.DEBUG if quiet else logging.INFO

    async def watch(self, backend: Backend) -> None:
        """Never returns; cancel it to stop."""
        while True:
            try:
                await self.probe(backend)
            except Exception as error:  # noqa: BLE001 - a boundary: probing must go on
                log.error("probe of %s: unexpected %s", backend.name, type(error).__name__)
                backend.health.down()
            # A backend that is down is asked more often: it is what requests wait for.
            for _ in range(TICKS):
                await asyncio.sleep(self._interval_s / TICKS)
                if not backend.health.reachable:
                    break

    def endpoint(self, backend: Backend) -> Endpoint:
        return Endpoint(
            self._client,
            backend.url,
            backend.headers,
            self._timeout_s,
            backend.ssl,
            backend.rank,
        )

    async def probe(self, backend: Backend) -> bool:
        """One round; True if the backend is ready. Rounds of one backend follow each other: the end
        of an older one must not undo what a later one found."""
        async with backend.probing:
            return await self._probe(backend)

    async def _probe(self, backend: Backend) -> bool:
        endpoint = self.endpoint(backend)
        was_reachable, was_gone = backend.health.reachable, backend.health.gone
        facts, backend.problem = None, ""
        try:
            if backend.engine is None:
                backend.engine = await detect(endpoint)
            if backend.engine is not None:
                facts = await backend.engine.probe(endpoint)
            if facts is None:
                backend.health.down()
        except ConnectRefused:
            backend.health.down()
        except BackendError as error:
            log.debug("probe of %s: %s", backend.name, error)
            backend.problem = str(error)
            backend.health.silent()
        if facts is None:
            if was_reachable and not backend.health.reachable:
                log.warning("backend %s is not ready any more", backend.name)
            if backend.health.gone and not was_gone and backend.witness is not None:
                backend.witness.down(backend.name)
            return False
        before = backend.facts
        if facts.advice and (before is None or before.advice != facts.advice):
            for sentence in facts.advice:
                log.log(self._log_level, "backend %s: %s", backend.name, sentence)
        restarted = (
            backend.health.gone
            or before is None
            or before.capacity != facts.capacity
            or began_anew(before, facts)
        )
        changed = before is None or before.models != facts.models
        if restarted or changed or not backend.settled:
            backend.settled = await self._on_ready(backend, facts, restarted)
        if not was_reachable:
            log.log(self._log_level, "backend %s is ready (mode %s)", backend.name, backend.mode)
        backend.facts = facts
        backend.health.probed(self._clock())
        backend.on_change()
        return True


class Watches:
    """The `watch` tasks of the backends there are now. An async context manager: leaving it ends
    them all."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def start(self, backend: Backend) -> None:
        """Raises ValueError if one of that name is watched already."""
        if backend.name in self._tasks:
            raise ValueError(f"{backend.name!r} is watched already")
        self._tasks[backend.name] = asyncio.create_task(
            self._monitor.watch(backend), name=f"watch {backend.name}"
        )

    def stop(self, name: str) -> None:
        """At once, whatever it is asking: nothing of it happens any more. Raises KeyError."""
        task = self._tasks.pop(name)
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for name in list(self._tasks):
            self.stop(name)
        await asyncio.gather(*self._ending, return_exceptions=True)
