"""What stands in a ledger for prompts and conversations: keyed digests, of keys that are no text.

Keys in, digests out; how the keys are made is not known here. Without the secret, a digest says
only what it is equal to.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

DIGEST_BYTES = 8
MAX_KNOWN = 131_072
"""Digests remembered: prompts share most of their beginnings, and a look-up is a tenth of the cost.
About 20 MB."""
MAX_PROMPTS = 1024


class Digests:
    """Mutable, for one thread."""

    def __init__(self, secret: bytes, max_known: int = MAX_KNOWN) -> None:
        key = secret if len(secret) <= blake2b.MAX_KEY_SIZE else blake2b(secret).digest()
        self._blocks = blake2b(key=key, digest_size=DIGEST_BYTES, person=b"ledger.block")
        self._talks = blake2b(key=key, digest_size=DIGEST_BYTES, person=b"ledger.talk")
        self._max_known = max_known // 2
        self._recent: dict[int, bytes] = {}
        self._before: dict[int, bytes] = {}
        self._prompts: dict[tuple[int, int], bytes] = {}

    def of_blocks(self, keys: Sequence[int]) -> bytes:
        """DIGEST_BYTES for each 64-bit key, in order. The keys are chained: the last one, with
        their number, stands for all."""
        if not keys:
            return b""
        place = keys[-1], len(keys)
        made = self._prompts.get(place)
        if made is None:
            recent = self._recent
            made = b"".join([recent.get(key) or self._of_block(key) for key in keys])
            if len(self._prompts) >= MAX_PROMPTS:
                self._prompts.clear()
            self._prompts[place] = made
        return made

    def of_conversation(self, key: int) -> bytes:
        hashed = self._talks.copy()
        hashed.update(key.to_bytes(8, "little"))
        return hashed.digest()

    def _of_block(self, key: int) -> bytes:
        digest = self._before.get(key)
        if digest is None:
            hashed = self._blocks.copy()
            hashed.update(key.to_bytes(8, "little"))
            digest = hashed.digest()
        if len(self._recent) >= self._max_known:
            self._before, self._recent = self._recent, {}
        self._recent[key] = digest
        return digest
