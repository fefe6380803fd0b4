"""What each backend is believed to hold, and for how much of a prompt that is good.

Pure bookkeeping: no clock, no I/O, and no say in who gets a request. How a kind of engine keeps
and loses its cache is the business of its CacheModel.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from prefold.prefix_index.prefix import Prefix


class Placement(msgspec.Struct, eq=False):
    """One request in one cache, from `begin` to `finish`. Only `cached_tokens` is for callers."""

    prefix: Prefix
    cached_tokens: int
    """Expected to be reused, as believed at `begin`."""
    era: object
    """What the cache was when this began: after a `clear` it is another, and knows us no more."""
    open: bool = True


class PrefixMatch(NamedTuple):
    """What a backend's cache is worth to a prompt, in tokens."""

    cached_tokens: int
    evicted_reuse: float
    """Of the tokens that would be evicted for it, those that are expected to be asked for again."""


NOTHING = PrefixMatch(0, 0.0)


class Correction(NamedTuple):
    """What a report changed in what is believed, in tokens."""

    lost_tokens: int = 0
    """Believed until now, and not any more."""
    found_tokens: int = 0
    """Doubted until now, and believed again."""
    emptied: bool = False
    """The engine is taken to have lost all that it held when the first sign of it came."""


RIGHT = Correction()
"""This very one: nothing was learned, so nobody need be told."""


class CacheModel(Protocol):
    """How one backend's prefix cache behaves. All counts are in tokens."""

    def match(self, prefix: Prefix) -> PrefixMatch:
        """How much of this prompt would be reused, were it sent now, and what is lost by that of
        what is held."""

    def begin(self, prefix: Prefix, now: float) -> Placement:
        """It is being sent: believed from here on, so that a burst sees itself."""

    def finish(self, placement: Placement, now: float, *, computed: bool = True) -> None:
        """It ended. Not `computed`: it may never have reached the engine, so nothing it would have
        left there is believed. Harmless when repeated, or when the cache was cleared meanwhile."""

    def correct(
        self, placement: Placement, cached_tokens: int, now: float, *, generated_tokens: int = 0
    ) -> Correction:
        """The engine reported that so many tokens of this prompt were cached, and its answer has so
        many (0: not known). To be called before `finish`, for exact tokens only. Takes constant
        time where the report is what was expected."""

    def clear(self) -> None:
        """The engine lost everything."""

    @property
    def size_tokens(self) -> int:
        """Tokens believed to be held."""

    @property
    def capacity_tokens(self) -> int:
        """The most it is believed to hold."""


class PrefixIndex:
    """One cache model for each backend, by name. A backend without one never matches."""

    def __init__(self) -> None:
        self._caches: dict[str, CacheModel] = {}

    def __repr__(self) -> str:
        held = ", ".join(
            f"{name}: {cache.size_tokens}/{cache.capacity_tokens}"
            for name, cache in self._caches.items()
        )
        return f"<PrefixIndex tokens held {{{held}}}>"

    def set_cache(self, backend: str, cache: CacheModel, block_tokens: int = 1) -> None:
        """Replaces what was known of that backend. `block_tokens`: the parts of a prompt that the
        cache tells apart, for who shares what is placed in it."""
        self._caches[backend] = cache

    def remove(self, backend: str) -> None:
        """No matter if it is not known."""
        self._caches.pop(backend, None)

    def clear(self, backend: str) -> None:
        """Forgets what the backend holds, not how it behaves. No matter if it is not known."""
        if cache := self._caches.get(backend):
            cache.clear()

    def size_tokens(self, backend: str) -> int:
        """Tokens believed to be held there; 0 if it is not known."""
        cache = self._caches.get(backend)
        return 0 if cache is None else cache.size_tokens

    def match(self, prefix: Prefix, backend: str) -> PrefixMatch:
        """Raises ValueError if the cache counts in other blocks than the ready keys of a trace."""
        cache = self._caches.get(backend)
        return NOTHING if cache is None else cache.match(prefix)

    def begin(self, backend: str, prefix: Prefix, now: float) -> Placement | None:
        """None if the backend is unknown. The caller finishes what it began, whatever happens."""
        cache = self._caches.get(backend)
        return None if cache is None else cache.begin(prefix, now)

    def finish(
        self, backend: str, placement: Placement, now: float, *, computed: bool = True
    ) -> None:
        """Late is harmless: a cache that was replaced or cleared since does not know it."""
        if cache := self._caches.get(backend):
            cache.finish(placement, now, computed=computed)

    def correct(
        self,
        backend: str,
        placement: Placement,
        cached_tokens: int,
        now: float,
        *,
        generated_tokens: int = 0,
    ) -> Correction:
        """As in `CacheModel`. Late is harmless here too."""
        cache = self._caches.get(backend)
        if cache is None:
            return RIGHT
        return cache.correct(placement, cached_tokens, now, generated_tokens=generated_tokens)

    def capacity_tokens(self, backend: str) -> int:
        """The most it is believed to hold; 0 if it is not known."""
        cache = self._caches.get(backend)
        return 0 if cache is None else cache.capacity_tokens
