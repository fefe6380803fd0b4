"""What a record is given for the ledger besides figures: keys of the prompt's beginnings and of the
conversation. They are hashes with a seed of this deployment; the ledger stores keyed digests of
them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from multidict import CIMultiDictProxy, istr
from xxhash import xxh3_64_intdigest

from prefold.backends.backend import Mode
from prefold.measurement.record import RequestRecord
from prefold.prefix_index.prefix import Prefix, namespace_seed
from prefold.proxy.messages import MessagesBody
from prefold.proxy.openai import Body, ChatBody
from prefold.proxy.prompt import Prompt
from prefold.proxy.responses import ResponsesBody

BLOCK_TOKENS = 512
"""As in the traces of Mooncake."""
BLOCK_BYTES = 4 * BLOCK_TOKENS
MEMO_BYTES = 4 * 1024 * 1024
WORTH_BLOCKS = 16
MAX_SEEDS = 1024
LONG_CHARS = 16_384
MAX_LONG = 16
"""Few: what is held is no memory for the next request."""


class LedgerNotes:
    """Mutable, for one event loop."""

    def __init__(self, secret: bytes, session_headers: Sequence[str]) -> None:
        """`session_headers`: those by whose value a client names its conversation, if it does."""
        self._secret = blake2b(secret, digest_size=32, person=b"conversation").digest()
        self._headers = tuple(istr(name) for name in session_headers)
        self._blocks = BlockKeys()
        self._long = LongTexts()
        self._seeds: dict[tuple[str, str], int] = {}

    def conversation(
        self, body: Body, headers: CIMultiDictProxy[str], tenant: str, model: str
    ) -> int | None:
        """A key that the turns of one conversation share: of its name, where the client gives one,
        else of its messages up to the first of a user. None where neither is known."""
        seed = self._seeds.get((model, tenant))
        if seed is None:
            seed = self._new_seed(model, tenant)
        for header in self._headers:
            if name := headers.get(header):
                return xxh3_64_intdigest(f"name {name}".encode("utf-8", "surrogatepass"), seed)
        texts = _opening(body)
        if not texts:
            return None
        key = seed
        for text in texts:
            short = text if len(text) < LONG_CHARS else self._long.mark(text)
            key = xxh3_64_intdigest(short.encode("utf-8", "surrogatepass"), key)
        return key

    def prompt(self, prompt: Prompt, record: RequestRecord) -> None:
        """To be called when the answer is over: by then the whole prompt is known."""
        prefix = _whole(prompt)
        if prefix is not None:
            record.prefix_tokens = prefix.length
            record.blocks = self._blocks.of(prefix)

    def _new_seed(self, model: str, tenant: str) -> int:
        if len(self._seeds) >= MAX_SEEDS:
            self._seeds.clear()
        seed = self._seeds[model, tenant] = namespace_seed(
            self._secret, model=model, adapter=None, cache_salt=None, tenant=tenant
        )
        return seed


class BlockKeys:
    """The keys of a prompt's full blocks, each of all up to its end. Mutable: long prompts that
    begin as an earlier one did cost a comparison and the hashes of what is new."""

    def __init__(self, memo_bytes: int = MEMO_BYTES, worth_blocks: int = WORTH_BLOCKS) -> None:
        """Of prompts of fewer than `worth_blocks` nothing is remembered: hashing costs less."""
        self._room = memo_bytes
        self._worth = worth_blocks
        self._latest: OrderedDict[int, tuple[bytearray, list[int]]] = OrderedDict()

    def of(self, prefix: Prefix) -> list[int]:
        """Do not change the list."""
        full = len(prefix.units) // BLOCK_TOKENS
        if not full:
            return []
        units = prefix.units[: full * BLOCK_TOKENS].astype(np.uint32, copy=False)
        raw = units.data.cast("B")
        first = xxh3_64_intdigest(raw[:BLOCK_BYTES], prefix.seed)
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


class LongTexts:
    """Marks that stand for long texts. Mutable. A text that came as the very same object, as system
    prompts do whose bodies begin alike, is not hashed again."""

    def __init__(self) -> None:
        self._marks: OrderedDict[int, tuple[str, str]] = OrderedDict()

    def mark(self, text: str) -> str:
        held = self._marks.get(id(text))
        if held is not None and held[0] is text:
            return held[1]
        made = f"#{xxh3_64_intdigest(text.encode('utf-8', 'surrogatepass')):x} "
        self._marks[id(text)] = text, made  # it is held, so its id stays its own
        if len(self._marks) > MAX_LONG:
            self._marks.popitem(last=False)
        return made


def _whole(prompt: Prompt) -> Prefix | None:
    """Exact ids if there are any; None where only the beginning is known."""
    whole = prompt.whole
    if whole is None:
        return prompt.prefix(Mode.FEEDBACK)
    if not whole.done() or whole.cancelled() or whole.exception() is not None:
        return None
    return whole.result()


def _opening(body: Body) -> list[str]:
    """Texts that stand for a conversation's beginning: the system's and the first user's. None at
    all for a prompt without turns, and for one that goes on what a backend stored."""
    texts: list[str] = []
    if isinstance(body, ChatBody):
        _add_messages(texts, body.messages)
    elif isinstance(body, MessagesBody):
        _add(texts, body.system)
        _add_messages(texts, body.messages)
    elif isinstance(body, ResponsesBody):
        if body.conversation is not None:
            _add(texts, body.conversation)
        elif body.previous_response_id is None:
            _add(texts, body.instructions)
            _add_messages(texts, body.input if isinstance(body.input, list) else [body.input])
    return texts


def _add_messages(texts: list[str], messages: list[Any]) -> None:
    for message in messages:
        if not isinstance(message, dict):
            _add(texts, message)
            return
        role, content = message.get("role"), message.get("content")
        texts.append(role if isinstance(role, str) else "")
        if isinstance(content, str):
            texts.append(content)
        else:
            _add(texts, content)
        if role == "user":
            return


def _add(texts: list[str], value: Any) -> None:
    """All that is in a JSON value, in order."""
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, dict):
        for name, inner in value.items():
            texts.append(name)
            _add(texts, inner)
    elif isinstance(value, list):
        texts.append(str(len(value)))
        for inner in value:
            _add(texts, inner)
    elif value is not None:
        texts.append(repr(value))
