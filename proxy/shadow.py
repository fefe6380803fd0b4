"""The cache of a backend in a simulation of what other policies would have reused: the model that
routing itself uses, fed with a ledger's digests instead of token ids."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from prefold.measurement.benefit.counterfactual import BLOCK_TOKENS, Begun
from prefold.prefix_index.block_lru import BlockLru
from prefold.prefix_index.prefix import Prefix


class ShadowCache:
    """Mutable. Blocks of BLOCK_TOKENS tokens: what is shorter is not seen to be shared."""

    def __init__(self, cache_tokens: int) -> None:
        """Raises ValueError unless a block fits."""
        self._cache = BlockLru(cache_tokens, BLOCK_TOKENS)

    def begin(self, blocks: Sequence[bytes], length: int, now: float) -> Begun:
        keys = [int.from_bytes(digest, "little") for digest in blocks]
        placement = self._cache.begin(Prefix.of_blocks(keys, BLOCK_TOKENS, length), now)
        return placement.cached_tokens, partial(self._cache.finish, placement)
