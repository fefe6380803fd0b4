"""Backends that come and go while the proxy runs, arms, and what of compression may change: the
difference between two settings, and what is done about it. Other settings take a restart; here they
are only named.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prefold.backends.backend import Backend
from prefold.backends.detect import ENGINES
from prefold.backends.health import HealthRules
from prefold.backends.kv_events.subscriber import Source
from prefold.backends.monitor import Watches
from prefold.backends.pool import BackendPool
from prefold.prefix_index.index import PrefixIndex
from prefold.proxy import settings as given
from prefold.proxy.compression.live import with_live
from prefold.proxy.compression.wiring import wanted
from prefold.proxy.discovery.sources import beside
from prefold.proxy.errors import SettingsError
from prefold.proxy.kv_events import Feeds
from prefold.proxy.ranks import rank_headers
from prefold.proxy.settings import Settings
from prefold.proxy.settings_checks import (
    arms_without_backends,
    checked,
    with_named_backends,
    with_secrets,
)
from prefold.proxy.tls import client_context

log = logging.getLogger(__name__)

Load = Callable[[], Settings]
"""Reads the settings again; raises SettingsError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """From the settings in force to others. One that changed is removed and added: nothing that was
    learned of it need be true of it now. `restart` names the settings that differ besides."""

    add: tuple[given.Backend, ...] = ()
    remove: tuple[str, ...] = ()
    keep: tuple[given.Backend, ...] = ()
    """As they are to be: only how much they take at once may differ."""
    restart: tuple[str, ...] = ()


def changes(old: Settings, new: Settings, *, compresses: bool = False) -> Changes:
    """`compresses`: there is a compressor, so that what of it is LIVE may change."""
    before = {backend.name: backend for backend in old.backends}
    keep = tuple(
        backend
        for backend in new.backends
        if backend.name in before and _same_server(backend, before[backend.name])
    )
    kept = {backend.name for backend in keep}
    return Changes(
        add=tuple(backend for backend in new.backends if backend.name not in kept),
        remove=tuple(name for name in before if name not in kept),
        keep=keep,
        restart=tuple(_different(old, new, compresses)),
    )


def _same_server(one: given.Backend, other: given.Backend) -> bool:
    alike = dataclasses.replace(one, max_in_flight=other.max_in_flight, labels=other.labels)
    return alike == other


def _different(old: Settings, new: Settings, compresses: bool) -> list[str]:
    """Dotted names, without values: some of them are secrets."""
    found = []
    if compresses:
        old = dataclasses.replace(old, compression=with_live(old.compression, new.compression))
    for field in dataclasses.fields(Settings):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if field.name in ("backends", "arms") or before == after:
            continue
        if dataclasses.is_dataclass(before):
            found += [
                f"{field.name}.{inner.name}"
                for inner in dataclasses.fields(before)
                if getattr(before, inner.name) != getattr(after, inner.name)
            ]
        else:
            found.append(field.name)
    if wanted(dataclasses.replace(old, arms=new.arms)) and not (compresses or wanted(old)):
        found.append("arms")  # they want a compressor, and none was started
    return found


def backend_of(backend: given.Backend, health: given.Health) -> Backend:
    """The backend that the settings describe, not probed yet. Raises SettingsError."""
    return Backend(
        name=backend.name,
        url=backend.url,
        headers=_headers(backend),
        engine=ENGINES.get(backend.engine),
        rules=HealthRules(
            failures_to_eject=health.failures_to_eject,
            eject_s=health.eject_s,
            eject_max_s=health.eject_max_s,
            slow_start_s=health.slow_start_s,
        ),
        ssl=client_context(Path(backend.ca_file)) if backend.ca_file else None,
        max_in_flight=backend.max_in_flight,
        pass_client_key=backend.pass_client_key,
        event_source=_event_source(backend),
        rank=None if backend.data_parallel_rank < 0 else backend.data_parallel_rank,
        labels=backend.labels,
    )


def _headers(backend: given.Backend) -> dict[str, str]:
    """Sent with every request, in place of the client's of the same name."""
    key = {"Authorization": f"Bearer {backend.api_key}"} if backend.api_key else {}
    return key | rank_headers(backend)


def _event_source(backend: given.Backend) -> Source | Literal["ask"] | None:
    if backend.kv_events in ("", "auto"):
        return "ask" if backend.kv_events else None
    return Source(
        endpoint=backend.kv_events,
        replay_endpoint=backend.kv_replay or None,
        topic=backend.kv_topic,
    )


def _nobody(arms: Sequence[given.Arm]) -> None:
    pass


class Reloader:
    """Whatever goes wrong, goes wrong before anything was changed."""

    def __init__(
        self,
        *,
        settings: Settings,
        load: Load | None,
        pool: BackendPool,
        index: PrefixIndex,
        watches: Watches,
        feeds: Feeds | None = None,
        set_arms: Callable[[Sequence[given.Arm]], None] = _nobody,
        set_compression: Callable[[given.Compression], None] | None = None,
    ) -> None:
        """`settings` are those that the pool's backends, and the compressor, were made from.
        Without `load` there is nothing to read again; without `feeds` no KV events are followed.
        `set_arms` and `set_compression` are told when they change."""
        self.settings = settings
        """In force; the backends are those there are now."""
        self._named = settings.backends
        """Of these, the ones that were not discovered."""
        self._discovered: tuple[given.Backend, ...] = ()
        self._load = load
        self._pool = pool
        self._index = index
        self._watches = watches
        self._feeds = feeds
        self._set_arms = set_arms
        self._set_compression = set_compression
        self._compresses = wanted(settings)

    def reload(self) -> Changes:
        """The backends become those that the settings name now, and those that were discovered:
        what was added or removed since, by `add` and `remove`, is undone. Raises SettingsError."""
        if self._load is None:
            raise SettingsError("the settings were not read from anywhere")
        new = self._load()
        named = new.backends
        if self._discovered:
            new = self._with_backends(named, self._discovered, new)
        made = self._become(new)
        self._named = named
        if made.restart:
            log.warning("these settings changed and take a restart: %s", ", ".join(made.restart))
        return made

    def reload_or_log(self) -> None:
        """For a signal, which nobody answers."""
        try:
            self.reload()
        except SettingsError as error:
            log.error("the settings were not taken over: %s", error)

    def add(self, backend: given.Backend) -> Backend:
        """One more than the settings name. Files and environment are not read for it: who may add
        a backend need not be allowed to read those. Raises SettingsError."""
        if backend.api_key_file or backend.ca_file:
            raise SettingsError("backends: files are named in the settings only")
        alone = with_secrets(with_named_backends(Settings(backends=(backend,))), {})
        [named] = alone.backends
        backends = (*self._named, named)
        self._become(self._with_backends(backends, self._discovered))
        self._named = backends
        return self._pool[named.name]

    def remove(self, name: str) -> None:
        """It takes nothing new; what it has ends as it would. Raises KeyError or SettingsError."""
        left = tuple(backend for backend in self._named if backend.name != name)
        if len(left) == len(self._named):
            if name in self._pool:
                raise SettingsError(f"{name!r} was discovered, and would be again")
            raise KeyError(name)
        self._become(self._with_backends(left, self._discovered))
        self._named = left

    def weigh(self, weights: Mapping[str, float]) -> None:
        """Other weights for some of the arms, until the settings are read again. Raises KeyError or
        SettingsError."""
        arms = self.settings.arms
        if unknown := weights.keys() - {arm.name for arm in arms}:
            raise KeyError(min(unknown))
        changed = tuple(
            dataclasses.replace(arm, weight=weights.get(arm.name, arm.weight)) for arm in arms
        )
        self._become(checked(dataclasses.replace(self.settings, arms=changed)))

    def discovered(self, found: Sequence[given.Backend]) -> None:
        """Beside the backends that are named, these are there now, and no other ones. Raises
        SettingsError."""
        self._become(self._with_backends(self._named, found))
        self._discovered = tuple(found)

    def _with_backends(
        self,
        named: Sequence[given.Backend],
        found: Sequence[given.Backend],
        settings: Settings | None = None,
    ) -> Settings:
        """The settings in force, or others, with these backends."""
        backends = beside(named, found)
        replaced = dataclasses.replace(settings or self.settings, backends=backends)
        return checked(with_named_backends(replaced))

    def _become(self, new: Settings) -> Changes:
        if new.experiment != self.settings.experiment:  # takes a restart, and so do its arms
            new = dataclasses.replace(new, arms=self.settings.arms)
        planned = changes(self.settings, new, compresses=self._compresses)
        made = [backend_of(backend, self.settings.health) for backend in planned.add]
        for name in planned.remove:
            self._watches.stop(name)
            self._pool.remove(name)
            self._index.remove(name)
            if self._feeds is not None:
                self._feeds.close(name)
        for backend in made:
            self._pool.add(backend)
            self._watches.start(backend)
        for kept in planned.keep:
            self._pool[kept.name].max_in_flight = kept.max_in_flight
            self._pool[kept.name].labels = kept.labels
            self._pool[kept.name].on_change()
        if new.arms != self.settings.arms:
            self._set_arms(new.arms)
            weights = ", ".join(f"{arm.name} {arm.weight:g}" for arm in new.arms)
            log.info("arms and their weights: %s", weights or "none")
        compression = self.settings.compression
        if self._compresses:
            compression = with_live(compression, new.compression)
        if compression != self.settings.compression:
            if self._set_compression is not None:
                self._set_compression(compression)
            log.info("compression is set anew: mode %s", compression.mode)
        before = arms_without_backends(self.settings)
        self.settings = dataclasses.replace(
            self.settings, backends=new.backends, arms=new.arms, compression=compression
        )
        for warning in arms_without_backends(self.settings):
            if warning not in before:
                log.warning("%s", warning)
        if planned.add or planned.remove:
            added = ", ".join(backend.name for backend in planned.add)
            removed = ", ".join(planned.remove)
            log.info("backends added: %s; removed: %s", added or "none", removed or "none")
        return planned
