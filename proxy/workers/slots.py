"""Where in the shared table each backend has its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prefold.proxy.errors import SettingsError


class Slots:
    """A backend's slot is its own as long as it is there, and given away again as late as possible:
    requests of a backend that was removed still end there."""

    def __init__(self, count: int, is_idle: Callable[[int], bool]) -> None:
        """`is_idle`: all numbers of a slot are zero."""
        self._by_name: dict[str, int] = {}
        self._free = list(range(count))
        self._is_idle = is_idle

    @property
    def assigned(self) -> dict[str, int]:
        return dict(self._by_name)

    def assign(self, names: Iterable[str]) -> Mapping[str, int]:
        """Slots of these, and of these only from now on. Raises SettingsError if there are more
        backends than slots."""
        wanted = set(names)
        for name in self._by_name.keys() - wanted:
            self._free.append(self._by_name.pop(name))
        for name in sorted(wanted - self._by_name.keys()):
            self._by_name[name] = self._next()
        return dict(self._by_name)

    def _next(self) -> int:
        for position, slot in enumerate(self._free):
            if self._is_idle(slot):
                return self._free.pop(position)
        raise SettingsError("backends: too many for several workers")
