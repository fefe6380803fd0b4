"""The parent's reloads: whatever changes, the workers are told."""

from __future__ import annotations

from collections.abc import Callable

from prefold.backends.monitor import Watches
from prefold.backends.pool import BackendPool
from prefold.prefix_index.index import PrefixIndex
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

    def _become(self, new: Settings) -> Changes:
        done = super()._become(new)
        self._changed(self.settings)
        return done
