"""The tasks between a replica and Redis. Nothing here is awaited by a request: it puts messages
into the outbox, and finds what others told in its own index.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from prefold.proxy.replicas.breaker import Breaker
from prefold.proxy.replicas.inbox import Inbox, Receiver
from prefold.proxy.replicas.messages import Loads, Stream
from prefold.proxy.replicas.outbox import Outbox, Pending
from prefold.proxy.replicas.seal import Seal
from prefold.proxy.replicas.session import WRITE_BYTES, Loadings, Place, Session, addition
from prefold.proxy.replicas.store import Store, StoreFailed
from prefold.proxy.replicas.window import Window

log = logging.getLogger(__name__)
LAST_WORDS_S = 0.5
MIB = 1024 * 1024
LOADS_BYTES, LOADS_TTL_S = MIB, 10.0
PINS_BYTES = 8 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRules:
    """Of what is kept in Redis, of what waits here, and of the time between two batches."""

    interval_s: float
    max_bytes: int
    ttl_s: float
    pins_ttl_s: float
    buffer_bytes: int


class Side(Receiver, Protocol):
    """This replica, as the link sees it."""

    def tick(self, now: float) -> None:
        """Called before each batch."""

    def loads(self) -> Loads:
        """Of this replica, now."""


class Link:
    """`opened` makes a Store; it is left, and made again, whenever Redis fails."""

    def __init__(
        self,
        *,
        seal: Seal,
        opened: Callable[[], AbstractAsyncContextManager[Store]],
        rules: LinkRules,
        clock: Callable[[], float],
    ) -> None:
        self.breaker = Breaker()
        self.outbox = Outbox(seal, rules.buffer_bytes)
        self._seal = seal
        self._opened = opened
        self._rules = rules
        self._clock = clock
        self._places = {
            Stream.DELTAS: Place(Window(max_bytes=rules.max_bytes, ttl_s=rules.ttl_s)),
            Stream.LOADS: Place(Window(max_bytes=LOADS_BYTES, ttl_s=LOADS_TTL_S)),
            Stream.PINS: Place(Window(max_bytes=PINS_BYTES, ttl_s=rules.pins_ttl_s)),
        }
        self._wake = asyncio.Event()
        self._session: Session | None = None
        self._ended = False

    def put(self, pending: Pending) -> None:
        """To be told to the other replicas, with the next batch."""
        self.outbox.put(pending)

    @asynccontextmanager
    async def running(self, side: Side) -> AsyncIterator[Inbox]:
        """Reads and writes until it is left; the last words are waited for, for a moment."""
        inbox = Inbox(self._seal, side, self._clock())
        loads = Loadings(side.loads, self._rules.interval_s)
        tasks = [
            asyncio.create_task(self._tick(side, loads), name="replicas: gather"),
            asyncio.create_task(self._keep(inbox, loads), name="replicas: redis"),
        ]
        try:
            yield inbox
        finally:
            self._ended = True
            if self._session is not None:
                self._session.end()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._last_words()

    async def _tick(self, side: Side, loads: Loadings) -> None:
        while True:
            await asyncio.sleep(self._rules.interval_s)
            now = self._clock()
            try:
                side.tick(now)
                self.outbox.gather()
            except Exception as error:  # noqa: BLE001 - a boundary: what is new must still be told
                log.error("a batch is lost: unexpected %s", type(error).__name__)
            if self.outbox.bytes or loads.due(now):
                self._wake.set()

    async def _keep(self, inbox: Inbox, loads: Loadings) -> None:
        while not self._ended:
            try:
                async with self._opened() as store:
                    self._session = Session(
                        store=store,
                        places=self._places,
                        outbox=self.outbox,
                        inbox=inbox,
                        loads=loads,
                        wake=self._wake,
                        interval_s=self._rules.interval_s,
                        works=self._works,
                        clock=self._clock,
                    )
                    await self._session.run()
            except* StoreFailed as failed:
                self._fails(_reason(failed))
            except* Exception as errors:  # noqa: BLE001 - a boundary: the next connection may do
                self._fails(f"unexpected {_reason(errors)}")
            await asyncio.sleep(self.breaker.pause_s)

    async def _last_words(self) -> None:
        """What is left, and that this replica has nothing anywhere any more."""
        if not self.breaker.closed:
            return
        self.outbox.gather()
        entries = [*self.outbox.first(WRITE_BYTES), self.outbox.sealed(Stream.LOADS, [Loads(())])]
        try:
            async with asyncio.timeout(LAST_WORDS_S), self._opened() as store:
                await store.add([addition(entry, self._places) for entry in entries])
        except (StoreFailed, TimeoutError):
            pass  # it is found out without

    def _works(self) -> None:
        if text := self.breaker.worked(self._clock()):
            log.info("%s", text)

    def _fails(self, reason: str) -> None:
        if text := self.breaker.failed(reason, self._clock()):
            log.warning("%s", text)


def _reason(failed: BaseExceptionGroup[Exception]) -> str:
    """Of the first one: the kind of error, never its text, which may quote what was written."""
    one = failed.exceptions[0]
    if isinstance(one, BaseExceptionGroup):
        return _reason(one)
    return str(one) if isinstance(one, StoreFailed) else type(one).__name__
