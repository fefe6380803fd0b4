"""What an engine's events say it holds, beside a guess of how old that is.

Events tell what was evicted, not what will be: that is an LRU's to guess. It is asked for nothing
else.
"""

from __future__ import annotations

from prefold.prefix_index.block_lru import BlockLru
from prefold.prefix_index.event_cache import EventCache
from prefold.prefix_index.index import Correction, Placement, PrefixMatch
from prefold.prefix_index.prefix import Prefix


class AgedEvents:
    """A CacheModel. Both parts count in the same blocks."""

    def __init__(self, events: EventCache, guess: BlockLru) -> None:
        self._events = events
        self._guess = guess
        self._guessed: dict[Placement, Placement] = {}

    def __repr__(self) -> str:
        return f"<AgedEvents {self._events!r}>"

    @property
    def size_tokens(self) -> int:
        return self._events.size_tokens

    @property
    def capacity_tokens(self) -> int:
        return self._events.capacity_tokens

    def match(self, prefix: Prefix) -> PrefixMatch:
        """Where the events leave room, nothing is evicted, whatever the guess."""
        told = self._events.match(prefix)
        if not told.evicted_reuse:
            return told
        return PrefixMatch(told.cached_tokens, self._guess.match(prefix).evicted_reuse)

    def begin(self, prefix: Prefix, now: float) -> Placement:
        placement = self._events.begin(prefix, now)
        self._guessed[placement] = self._guess.begin(prefix, now)
        return placement

    def finish(self, placement: Placement, now: float, *, computed: bool = True) -> None:
        guessed = self._guessed.pop(placement, None)
        if guessed is not None:
            self._guess.finish(guessed, now, computed=computed)
        self._events.finish(placement, now, computed=computed)

    def correct(
        self, placement: Placement, cached_tokens: int, now: float, *, generated_tokens: int = 0
    ) -> Correction:
        guessed = self._guessed.get(placement)
        if guessed is not None:
            self._guess.correct(guessed, cached_tokens, now, generated_tokens=generated_tokens)
        return self._events.correct(
            placement, cached_tokens, now, generated_tokens=generated_tokens
        )

    def clear(self) -> None:
        """What is under way is finished by who began it all the same."""
        self._events.clear()
        self._guess.clear()
