"""What stands in a ledger for prompts and conversations: keyed digests, of keys that are no text.

Keys in, digests out; how the keys are made is not known here. Without the secret, a digest says
only what it is equal to.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

DIGEST_BYTES = 8
HEX = 2 * DIGEST_BYTES
MAX_KNOWN = 131_072
"""Digests remembered: prompts share most of their beginnings, and a look-up is a tenth of the cost.
About 20 MB."""
MAX_PROMPTS = 1024


class Digests:
    """As hex, HEX digits each. Mutable, for one thread."""

    def __init__(self, secret: bytes, max_known: int = MAX_KNOWN) -> None:
        key = secret if len(secret) <= blake2b.MAX_KEY_SIZE else blake2b(secret).digest()
        self._blocks = blake2b(key=key, digest_size=DIGEST_BYTES, person=b"ledger.block")
        self._talks = blake2b(key=key, digest_size=DIGEST_BYTES, person=b"ledger.talk")
        self._max_known = max_known // 2
        self._recent: dict[int, str] = {}
        self._before: dict[int, str] = {}
        self._prompts: dict[tuple[int, int], str] = {}

    def of_blocks(self, keys: Sequence[int]) -> str:
        """One after another, of 64-bit keys that are chained: the last one, with their number,
        stands for all. What prompts share is remembered."""
        if not keys:
            return ""
        place = keys[-1], len(keys)
        made = self._prompts.get(place)
        if made is None:
            if len(self._prompts) >= MAX_PROMPTS:
                self._prompts.clear()
            made = self._prompts[place] = "".join(map(self._known, keys))
        return made

    def of_block(self, key: int) -> str:
        hashed = self._blocks.copy()
        hashed.update(key.to_bytes(8, "little"))
        return hashed.hexdigest()

    def of_conversation(self, key: int) -> str:
        hashed = self._talks.copy()
        hashed.update(key.to_bytes(8, "little"))
        return hashed.hexdigest()

    def _known(self, key: int) -> str:
        digest = self._recent.get(key)
        if digest is None:
            digest = self._before.get(key) or self.of_block(key)
            if len(self._recent) >= self._max_known:
                self._before, self._recent = self._recent, {}
            self._recent[key] = digest
        return digest
