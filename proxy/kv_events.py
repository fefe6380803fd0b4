"""The KV events of backends on their way into cache models: one followed stream for each backend.

Decides nothing about modes: who opens a feed is told whenever what its cache claims begins or ends
to be worth something.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Self

from prefold.backends.kv_events.changes import (
    Change,
    Cleared,
    CopiedToHost,
    Refused,
    Removed,
    Stored,
)
from prefold.backends.kv_events.subscriber import PyzmqMissing, Source, Subscriber
from prefold.prefix_index.event_cache import EventCache
from prefold.prefix_index.prefix import namespace_seed

log = logging.getLogger(__name__)


def engine_seed(secret: bytes, adapter: str | None, salt: str | None) -> int:
    """What an engine keys its blocks by beside tokens, as the seed of a prompt. It knows no tenants
    but by the salt that they were given, and of its one base model there is no need to speak."""
    return namespace_seed(secret, model="", adapter=adapter, cache_salt=salt, tenant=None)


class CacheSink:
    """Puts changes into a cache model. `on_change` gets its problem whenever that is another."""

    def __init__(self, cache: EventCache, on_change: Callable[[str], None]) -> None:
        self._cache = cache
        self._on_change = on_change
        self._problem = cache.problem

    def apply(self, changes: list[Change]) -> None:
        for change in changes:
            self._apply(change)
        self._tell()

    def _apply(self, change: Change) -> None:
        cache = self._cache
        match change:
            case Stored():
                cache.stored(
                    change.handles,
                    change.parent,
                    change.tokens,
                    change.block_tokens,
                    host=change.host,
                    adapter=change.adapter,
                    salt=change.salt,
                    foreign=change.foreign,
                )
            case CopiedToHost():
                cache.copied_to_host(change.handles)
            case Removed():
                cache.removed(change.handles, host=change.host)
            case Cleared():
                cache.cleared()
            case Refused():
                cache.refuse(change.reason)

    def void(self, *, complete: bool) -> None:
        self._cache.void(complete=complete)
        self._tell()

    def distrust(self, reason: str) -> None:
        self._cache.distrust(reason)
        self._tell()

    def trust(self) -> None:
        self._cache.trust()
        self._tell()

    def _tell(self) -> None:
        if self._cache.problem != self._problem:
            self._problem = self._cache.problem
            self._on_change(self._problem)


class Feed:
    """One backend's cache model and the task that keeps it true."""

    def __init__(
        self,
        source: Source,
        *,
        block_tokens: int,
        capacity_tokens: int,
        secret: bytes,
        on_change: Callable[[str], None],
        after: Collection[asyncio.Task[None]] = (),
    ) -> None:
        """`on_change` gets the reason why the cache claims nothing, or "". The stream is opened
        when the tasks of `after` are done. Raises ValueError if no block fits. Needs a running
        event loop."""
        self.source = source
        self._on_change = on_change
        self._stopped = False
        self.trusted = asyncio.Event()
        """Set when the cache claims something for the first time."""
        self.cache = EventCache(
            block_tokens=block_tokens,
            capacity_tokens=capacity_tokens,
            seed_of=lambda adapter, salt: engine_seed(secret, adapter, salt),
        )
        self._sink = CacheSink(self.cache, self._changed)
        self.subscriber = Subscriber(source, self._sink)
        self._task = asyncio.create_task(self._run(after), name=f"KV events {source.endpoint}")

    @property
    def alive(self) -> bool:
        """Not: it was stopped, or cannot be followed; the cache's `problem` says why."""
        return not self._task.done()

    async def _run(self, after: Collection[asyncio.Task[None]]) -> None:
        if after:
            await asyncio.wait(after)
        try:
            await self.subscriber.run()
        except (PyzmqMissing, OSError) as error:
            log.error("KV events from %s cannot be followed: %s", self.source.endpoint, error)
            self._sink.distrust(str(error))

    def stop(self) -> asyncio.Task[None]:
        """Nothing is told of it any more. Its sockets are closed when the task is done."""
        self._stopped = True
        self._task.cancel()
        return self._task

    async def close(self) -> None:
        """The cache claims nothing any more."""
        await asyncio.gather(self.stop(), return_exceptions=True)

    def _changed(self, problem: str) -> None:
        if not problem:
            self.trusted.set()
        if not self._stopped:
            self._on_change(problem)


class Feeds:
    """The feeds there are, by backend. An async context manager: leaving it ends them all."""

    def __init__(self, *, secret: bytes, on_change: Callable[[str, str], None]) -> None:
        """`on_change` gets a backend's name and the reason why its cache claims nothing, or ""."""
        self._secret = secret
        self._on_change = on_change
        self._feeds: dict[str, Feed] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def open(
        self, backend: str, source: Source, *, block_tokens: int, capacity_tokens: int
    ) -> EventCache:
        """As long as all is as before, the feed that there is goes on: it notices by itself that
        the engine began anew. Raises ValueError if no block fits."""
        feed = self._feeds.get(backend)
        if (
            feed is not None
            and feed.alive
            and feed.source == source
            and feed.cache.block_tokens == block_tokens
            and feed.cache.capacity_tokens == capacity_tokens
        ):
            return feed.cache
        self.close(backend)
        feed = self._feeds[backend] = Feed(
            source,
            block_tokens=block_tokens,
            capacity_tokens=capacity_tokens,
            secret=self._secret,
            on_change=lambda problem: self._on_change(backend, problem),
            after=tuple(self._ending),  # one of them may hold the port that this one is to bind
        )
        return feed.cache

    def get(self, backend: str) -> Feed | None:
        """The `problem` of its cache tells whether it is worth anything now."""
        return self._feeds.get(backend)

    def close(self, backend: str) -> None:
        """At once, as far as anybody is told. No matter if there is none."""
        if (feed := self._feeds.pop(backend, None)) is not None:
            task = feed.stop()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        for backend in tuple(self._feeds):
            self.close(backend)
        await asyncio.gather(*self._ending, return_exceptions=True)
