"""One connection to Redis, written and read until it fails or is ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from prefold.proxy.replicas.inbox import Inbox
from prefold.proxy.replicas.messages import Loads, Stream
from prefold.proxy.replicas.outbox import Entry, Outbox
from prefold.proxy.replicas.store import READ_ENTRIES, Addition, Store
from prefold.proxy.replicas.window import BEGIN, Id, Window

WRITE_BYTES = 1024 * 1024
"""Of one batch, about."""
HEARTBEAT_S = 1.0
SLICE_S = 0.002
"""What is taken in without a break; requests come before it."""


@dataclass(slots=True)
class Place:
    """Of one stream: the last entry that was read (None: nothing was yet), and what is kept."""

    window: Window
    after: Id | None = None

    def found(self, last: Id, *, from_now: bool) -> None:
        """The stream's newest entry, on a new connection. If it is before our place, the stream is
        another one than it was: Redis was restarted, emptied, or failed over."""
        if self.after is None:
            self.after = last if from_now else BEGIN
        elif last < self.after:
            self.after = BEGIN
            self.window.clear()


class Loadings:
    """When to tell this replica's loads: at once when they changed, and every second."""

    def __init__(self, loads: Callable[[], Loads], interval_s: float) -> None:
        self._loads = loads
        self._interval_s = interval_s
        self._told: tuple[Loads, float] | None = None

    def due(self, now: float) -> bool:
        if self._told is None:
            return True
        before, when = self._told
        return now - when >= HEARTBEAT_S or (
            now - when >= self._interval_s and self._loads() != before
        )

    def take(self, now: float) -> Loads:
        self._told = self._loads(), now
        return self._told[0]


def addition(entry: Entry, places: Mapping[Stream, Place]) -> Addition:
    window = places[entry.stream].window
    return Addition(
        stream=entry.stream, content=entry.content, least=window.least, ttl_s=window.ttl_s
    )


class Session:
    """`works` is called once this connection has both written and read."""

    def __init__(
        self,
        *,
        store: Store,
        places: Mapping[Stream, Place],
        outbox: Outbox,
        inbox: Inbox,
        loads: Loadings,
        wake: asyncio.Event,
        interval_s: float,
        works: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """`wake` is set when there is something to write."""
        self._store = store
        self._places = places
        self._outbox = outbox
        self._inbox = inbox
        self._loads = loads
        self._wake = wake
        self._interval_s = interval_s
        self._works = works
        self._clock = clock
        self._unproved = {"read", "write"}
        self._over = False

    def end(self) -> None:
        """Beside being cancelled: a cancellation was seen to be lost inside of a command (redis-py
        8.1, Python 3.11), and a half that goes on alone would do so for ever."""
        self._over = True
        self._wake.set()

    async def run(self) -> None:
        """Raises StoreFailed, alone or in a group."""
        for stream, place in self._places.items():
            place.found(await self._store.last(stream), from_now=stream is Stream.LOADS)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._ending(self._read()), name="replicas: read")
            group.create_task(self._ending(self._write()), name="replicas: write")

    async def _ending(self, half: Coroutine[Any, Any, None]) -> None:
        """Neither half goes on without the other."""
        try:
            await half
        finally:
            self.end()

    async def _read(self) -> None:
        while not self._over:
            found = await self._store.read(
                {stream: place.after or BEGIN for stream, place in self._places.items()}
            )
            self._proved("read")
            self._inbox.alive(self._clock())
            began = self._clock()
            for stream, entry, content in found:
                place = self._places[stream]
                place.after = entry
                place.window.add(entry, len(content))
                self._inbox.take(stream, content, self._clock())
                if self._clock() - began > SLICE_S:
                    await asyncio.sleep(0)
                    began = self._clock()
            if len(found) < READ_ENTRIES:
                # Entries come one by one, and each command costs as much as taking several in.
                await asyncio.sleep(self._interval_s / 2)

    async def _write(self) -> None:
        while not self._over:
            await self._wake.wait()
            self._wake.clear()
            while not self._over and (entries := self._next()):
                for entry in entries:
                    self._inbox.sent(entry.stream, entry.number, self._clock())
                await self._store.add([addition(entry, self._places) for entry in entries])
                self._outbox.done(entries)
                self._proved("write")

    def _next(self) -> list[Entry]:
        entries = self._outbox.first(WRITE_BYTES)
        now = self._clock()
        if self._loads.due(now):
            entries.append(self._outbox.sealed(Stream.LOADS, [self._loads.take(now)]))
        return entries

    def _proved(self, what: str) -> None:
        if self._unproved:
            self._unproved.discard(what)
            if not self._unproved:
                self._works()
