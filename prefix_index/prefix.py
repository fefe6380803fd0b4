"""What a prompt is to the index: units in order, and the chained keys of its blocks.

Knows nothing of text, tokenizers or backends. Keys mean nothing outside this process, and no
engine's own block hash is ever reproduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from prefold.prefix_index.chain_memo import ChainMemo

Units = NDArray[np.uint32] | NDArray[np.uint64]


def namespace_seed(
    secret: bytes, *, model: str, adapter: str | None, cache_salt: str | None, tenant: str | None
) -> int:
    """64 bits that part prompts which must not share a prefix, keyed by the deployment's secret.

    Each field is tagged and length-prefixed, so no two different tuples are hashed as the same
    bytes, and None differs from "". Secrets of any length (BLAKE2b's own limit is 64 bytes).
    """
    key = secret if len(secret) <= blake2b.MAX_KEY_SIZE else blake2b(secret).digest()
    digest = blake2b(digest_size=8, key=key, person=b"prefold.prefix")
    for tag, value in ((b"m", model), (b"a", adapter), (b"s", cache_salt), (b"t", tenant)):
        if value is not None:
            # JSON strings may carry lone surrogates; they are as good a salt as any.
            raw = value.encode("utf-8", "surrogatepass")
            digest.update(tag + len(raw).to_bytes(8, "little") + raw)
    return int.from_bytes(digest.digest(), "little")


class Prefix:
    """One prompt. Immutable, and it keeps the array it was built from: do not change that either.

    `units` are the token ids (`unit_tokens` 1), or the ready keys of a trace, each of which
    stands for `unit_tokens` tokens *and all that precede them*. `length` is in tokens; it may be
    greater than what the units cover, which are then the prompt's beginning.
    """

    __slots__ = ("_chains", "_memo", "length", "seed", "unit_tokens", "units")

    def __init__(
        self, units: Units, *, unit_tokens: int, length: int, seed: int, memo: ChainMemo | None
    ) -> None:
        """Use `of_tokens` or `of_blocks`."""
        self._memo = memo
        self.units = units
        self.unit_tokens = unit_tokens
        self.length = length
        self.seed = seed
        self._chains: dict[int, Sequence[int]] = {}

    @classmethod
    def of_tokens(
        cls,
        tokens: NDArray[np.uint32],
        seed: int,
        memo: ChainMemo | None = None,
        *,
        length: int | None = None,
    ) -> Prefix:
        """Token ids and the seed of their namespace; `memo` spares work on prompts that begin as
        others did. `length`: that of the whole prompt, where only its beginning is known."""
        units = np.ascontiguousarray(tokens, dtype=np.uint32)
        length = len(units) if length is None else length
        return cls(units, unit_tokens=1, length=length, seed=seed, memo=memo)

    @classmethod
    def of_blocks(cls, keys: Sequence[int], block_tokens: int, length: int) -> Prefix:
        """Ready 64-bit keys, one a block, equal only where everything up to there is equal.

        The last block may be a partial one. Raises ValueError if the keys do not cover `length`
        tokens, all of them or all but the rest that fills no block.
        """
        if block_tokens < 1 or len(keys) not in (
            length // block_tokens,
            -(-length // block_tokens),
        ):
            raise ValueError(
                f"{len(keys)} keys of {block_tokens} tokens do not cover {length} tokens"
            )
        units = np.array(keys, dtype=np.uint64)
        return cls(units, unit_tokens=block_tokens, length=length, seed=0, memo=None)

    def __repr__(self) -> str:
        return f"<Prefix of {self.length} tokens in units of {self.unit_tokens}>"

    def chain(self, block_tokens: int) -> Sequence[int]:
        """The key of each full block, in order: equal keys, equal prompts up to that block's end.

        Computed once for each block size. Raises ValueError if the units are ready keys of
        another block size.
        """
        chain = self._chains.get(block_tokens)
        if chain is None:
            chain = self._chains[block_tokens] = self._make_chain(block_tokens)
        return chain

    def _make_chain(self, block_tokens: int) -> Sequence[int]:
        full = self.length // block_tokens  # of ready keys, too: the last may be of a partial one
        if self.unit_tokens != 1:
            if block_tokens != self.unit_tokens:
                raise ValueError(
                    f"keys of {self.unit_tokens} tokens have no blocks of {block_tokens}"
                )
            ready: list[int] = self.units[:full].tolist()
            return ready
        memo = self._memo if self._memo is not None else ChainMemo(0)
        return memo.chain(self.units.astype(np.uint32, copy=False), self.seed, block_tokens)

    def affinity(self, tokens: int = 256) -> int:
        """A key that prompts of one namespace share if they share their first `tokens` tokens.

        A shorter prompt's key is that of all its tokens. Of ready keys, the one that reaches
        `tokens` tokens (or the last) decides, since it stands for all before it.
        """
        units = -(-tokens // self.unit_tokens)
        return xxh3_64_intdigest(self.units[:units].tobytes(), self.seed)
