"""What a record is given for the ledger besides figures: keys of the prompt's beginnings and of the
conversation. They are hashes with a seed of this deployment; the ledger stores keyed digests of
them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

from prefold.measurement.record import RequestRecord
from prefold.prefix_index.prefix import Prefix
from prefold.proxy.conversations import Conversations
from prefold.proxy.prompt import Prompt

BLOCK_TOKENS = 512
"""As in the traces of Mooncake."""
BLOCK_BYTES = 4 * BLOCK_TOKENS
MEMO_BYTES = 4 * 1024 * 1024
WORTH_BLOCKS = 16
MAX_KNOWN = 1024
"""Of prompts' keys: 10 MB where each is of 128k tokens and shares nothing."""


class LedgerNotes:
    """Mutable, for one event loop."""

    def __init__(self, conversations: Conversations) -> None:
        self.conversation = conversations.key
        self._blocks = BlockKeys()

    def prompt(self, prompt: Prompt, record: RequestRecord) -> None:
        """To be called as long as the prompt's ids are at hand, and again when the answer is over,
        if the whole prompt was not known before: by then it is."""
        whole = prompt.whole
        # Of exact ids, if there are any.
        prefix = next(iter(prompt.prefixes.values())) if whole is None else _known(whole)
        if prefix is not None:
            record.prefix_tokens = prefix.length
            record.blocks, record.last_block = self._blocks.of(prefix)


class BlockKeys:
    """The keys of a prompt's full blocks, each of all up to its end. Mutable: prompts that are like
    an earlier one in all full blocks but the last cost two hashes, long ones that only begin like
    one a comparison and the hashes of what is new."""

    def __init__(self, memo_bytes: int = MEMO_BYTES, worth_blocks: int = WORTH_BLOCKS) -> None:
        """Of prompts of fewer than `worth_blocks` no bytes are remembered: hashing costs less."""
        self._room = memo_bytes
        self._worth = worth_blocks
        self._latest: OrderedDict[int, tuple[bytearray, list[int]]] = OrderedDict()
        self._known: dict[int, list[int]] = {}

    def of(self, prefix: Prefix) -> tuple[Sequence[int], int | None]:
        """All but the last, and that one."""
        full = len(prefix.units) // BLOCK_TOKENS
        if not full:
            return (), None
        units, end = prefix.units.data, full * BLOCK_TOKENS
        last = units[end - BLOCK_TOKENS : end]
        if full == 1:
            return (), xxh3_64_intdigest(last, prefix.seed)
        before = units[: end - BLOCK_TOKENS]
        whole = xxh3_64_intdigest(before, prefix.seed)
        keys = self._known.get(whole)
        if keys is None:
            keys = self._made(before.cast("B"), full - 1, prefix.seed)
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[whole] = keys
        return keys, xxh3_64_intdigest(last, keys[-1])

    def _made(self, raw: memoryview, full: int, seed: int) -> list[int]:
        first = xxh3_64_intdigest(raw[:BLOCK_BYTES], seed)
        if full < self._worth:
            return [first, *_chained(raw[BLOCK_BYTES:], first)]
        held = self._latest.get(first)
        common, keys = 0, [first]
        if held is not None:
            self._latest.move_to_end(first)
            common = _common_blocks(held[0], raw)
            keys = held[1][:common]
        keys += _chained(raw[len(keys) * BLOCK_BYTES :], keys[-1])
        # A short rest is the question of one request: what is remembered is what prompts share.
        if full - common >= self._worth // 2:
            self._remember(first, bytearray(raw), keys)
        elif held is not None and common < min(full, len(held[1])):
            self._remember(first, held[0][: common * BLOCK_BYTES], held[1][:common])
        return keys

    def _remember(self, first: int, raw: bytearray, keys: list[int]) -> None:
        before = self._latest.get(first)
        self._room += (len(before[0]) if before is not None else 0) - len(raw)
        self._latest[first] = raw, keys
        while self._room < 0:
            _, (oldest, _) = self._latest.popitem(last=False)
            self._room += len(oldest)


def _chained(raw: memoryview, key: int) -> list[int]:
    return [
        key := xxh3_64_intdigest(raw[at : at + BLOCK_BYTES], key)
        for at in range(0, len(raw), BLOCK_BYTES)
    ]


def _common_blocks(one: bytearray, other: memoryview) -> int:
    """So many leading blocks are equal; the first one is known to be. A bytearray compares itself
    with any buffer at the speed of memory, which a memoryview does not."""
    most = min(len(one), len(other)) // BLOCK_BYTES
    if (one if len(one) <= len(other) else one[: len(other)]) == other[: most * BLOCK_BYTES]:
        return most
    least = 1
    while least < most - 1:
        middle = (least + most) // 2
        if one[: middle * BLOCK_BYTES] == other[: middle * BLOCK_BYTES]:
            least = middle
        else:
            most = middle
    return least


def _known(whole: asyncio.Future[Prefix]) -> Prefix | None:
    """None while it is being made, and if that failed."""
    if not whole.done() or whole.cancelled() or whole.exception() is not None:
        return None
    return whole.result()
