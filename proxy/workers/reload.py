"""The parent's reloads: whatever changes, the workers are told."""

from __future__ import annotations

from collections.abc import Callable

from prefold.backends.backend import Backend
from prefold.backends.monitor import Watches
from prefold.backends.pool import BackendPool
from prefold.prefix_index.index import PrefixIndex
from prefold.proxy import settings as given
from prefold.proxy.reload import Changes, Load, Reloader
from prefold.proxy.settings import Settings


class TellingReloader(Reloader):
    def __init__(
        self,
        *,
        settings: Settings,
        load: Load | None,
        pool: BackendPool,
        index: PrefixIndex,
        watches: Watches,
        changed: Callable[[Settings], None],
    ) -> None:
        """`changed` is called with the settings in force, after each change."""
        super().__init__(settings=settings, load=load, pool=pool, index=index, watches=watches)
        self._changed = changed

    def reload(self) -> Changes:
        done = super().reload()
        self._changed(self.settings)
        return done

    def add(self, backend: given.Backend) -> Backend:
        added = super().add(backend)
        self._changed(self.settings)
        return added

    def remove(self, name: str) -> None:
        super().remove(name)
        self._changed(self.settings)
