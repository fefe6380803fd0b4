"""The fleet follows what is discovered: looks at each source now and then, tells what there is, and
keeps to the last good answer of a source that has none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from prefold.proxy import settings as given
from prefold.proxy.discovery.dns import DnsSource, Resolve, resolve
from prefold.proxy.discovery.file import FileSource
from prefold.proxy.discovery.sources import DiscoveryError, Source, beside
from prefold.proxy.errors import SettingsError

log = logging.getLogger(__name__)

Found = Callable[[Sequence[given.Backend]], None]
"""Told of all that were discovered, whenever that changes. Raises SettingsError."""


class Following:
    """Mutable: what each source found last, and what was said of it.

    What a source does not name any more goes when its next answer lacks it too: what came in its
    place has an interval to be probed in, and some resolvers give only some of many records.
    """

    def __init__(self, sources: Sequence[Source], found: Found) -> None:
        self._sources = sources
        self._found = found
        self._named: dict[str, tuple[given.Backend, ...]] = {}
        """By each source, in its last answer."""
        self._backends: dict[str, tuple[given.Backend, ...]] = {}
        """Those, and what the answer before that named."""
        self._told: tuple[given.Backend, ...] = ()
        self._problems: dict[str, str] = {}
        """By what they are problems of; each is logged when it comes and when it has gone."""

    @property
    def backends(self) -> tuple[given.Backend, ...]:
        """Of all sources, in their order, each server once."""
        found: tuple[given.Backend, ...] = ()
        for source in self._sources:
            found = beside(found, self._backends.get(source.name, ()))
        return found

    @property
    def problems(self) -> tuple[str, ...]:
        """What went wrong at the last look."""
        return tuple(self._problems.values())

    async def look(self) -> None:
        for source in self._sources:
            name = source.name
            try:
                now = await source.look()
            except DiscoveryError as error:
                self._is_wrong(name, str(error))
            else:
                self._backends[name] = beside(now, self._named.get(name, ()))
                self._named[name] = now
                self._is_well(name)
        backends = self.backends
        if backends == self._told:
            return
        try:
            self._found(backends)
        except SettingsError as error:
            self._is_wrong("list", f"not taken over: {error}")
        else:
            self._told = backends
            self._is_well("list")

    async def run(self, interval_s: float) -> None:
        """Never returns; cancel it to stop."""
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - a boundary: looking must go on
                log.error("discovery: unexpected %s", type(error).__name__)

    def _is_wrong(self, what: str, problem: str) -> None:
        if self._problems.get(what) != problem:
            log.warning("discovery: %s; the backends stay as they are", problem)
        self._problems[what] = problem

    def _is_well(self, what: str) -> None:
        if self._problems.pop(what, None) is not None:
            log.info("discovery: the %s is well again", what)


def sources_of(wanted: given.Discovery, resolve: Resolve = resolve) -> list[Source]:
    """Those that the settings name."""
    sources: list[Source] = []
    if wanted.dns:
        url = urlsplit(wanted.dns)
        template = given.Backend(
            url=wanted.dns,
            engine=wanted.engine,
            api_key=wanted.api_key,
            max_in_flight=wanted.max_in_flight,
            kv_events=wanted.kv_events,
        )
        sources.append(
            DnsSource(
                host=url.hostname or "",
                port=url.port or 80,
                family=wanted.dns_family,
                template=template,
                resolve=resolve,
            )
        )
    if wanted.file:
        sources.append(FileSource(Path(wanted.file)))
    return sources


@asynccontextmanager
async def following(wanted: given.Discovery, found: Found) -> AsyncIterator[None]:
    """One look before, and further ones inside, every `interval_s`."""
    if not wanted.wanted:
        yield
        return
    follows = Following(sources_of(wanted), found)
    await follows.look()
    task = asyncio.create_task(follows.run(wanted.interval_s), name="discovery")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
