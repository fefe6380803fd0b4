"""An index that tells keys of blocks only: no token id leaves the process, whatever the engine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from prefold.prefix_index.deltas import Delta, SharedIndex
from prefold.prefix_index.index import CacheModel, Correction, Placement, PrefixMatch
from prefold.prefix_index.prefix import Prefix

BLOCK_TOKENS = 16
"""Of caches that compare token ids themselves (llama.cpp's slots). What they hold is known to the
block then, not to the token: up to 15 tokens of a prefix are taken for uncached."""


class KeyedIndex(SharedIndex):
    """As SharedIndex, but caches that would compare tokens are given keys of blocks."""

    def __init__(
        self, tell: Callable[[Callable[[], Delta]], None], ask: Callable[[str], None]
    ) -> None:
        super().__init__(tell, ask)
        self._compares_tokens: set[str] = set()
        self._last: tuple[Prefix, Prefix] | None = None

    def set_cache(self, backend: str, cache: CacheModel, block_tokens: int = 1) -> None:
        if block_tokens == 1:
            self._compares_tokens.add(backend)
        else:
            self._compares_tokens.discard(backend)
        super().set_cache(backend, cache, BLOCK_TOKENS if block_tokens == 1 else block_tokens)

    def match(self, prefix: Prefix, backend: str) -> PrefixMatch:
        return super().match(self._told(backend, prefix), backend)

    def begin(self, backend: str, prefix: Prefix, now: float) -> Placement | None:
        return super().begin(backend, self._told(backend, prefix), now)

    def correct(
        self,
        backend: str,
        placement: Placement,
        cached_tokens: int,
        now: float,
        *,
        generated_tokens: int = 0,
    ) -> Correction:
        """A report is taken to the block, too: a few tokens more than expected are no surprise."""
        if backend in self._compares_tokens:
            more = cached_tokens - placement.cached_tokens
            whole = cached_tokens // BLOCK_TOKENS * BLOCK_TOKENS
            cached_tokens = placement.cached_tokens if 0 <= more < BLOCK_TOKENS else whole
        return super().correct(
            backend, placement, cached_tokens, now, generated_tokens=generated_tokens
        )

    def _told(self, backend: str, prefix: Prefix) -> Prefix:
        """The last one is remembered: it is asked for with each candidate."""
        if backend not in self._compares_tokens:
            return prefix
        if self._last is None or self._last[0] is not prefix:
            self._last = prefix, by_blocks(prefix, BLOCK_TOKENS)
        return self._last[1]


def by_blocks(prefix: Prefix, block_tokens: int) -> Prefix:
    """The same prompt, known by the keys of its full blocks."""
    keys = np.array(prefix.chain(block_tokens), dtype=np.uint64)
    return Prefix(keys, unit_tokens=block_tokens, length=prefix.length, seed=0, memo=None)
