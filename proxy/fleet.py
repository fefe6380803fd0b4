"""What happens when a backend becomes ready: its cache is modelled, its tokens are checked.

The verdict is the backend's mode: exact tokens only where the engine itself, asked for the ids of a
few conversations, gives the ones that we make.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from prefold.backends.backend import Backend, Mode
from prefold.backends.engine import (
    BlockCapacity,
    Capacity,
    Endpoint,
    EngineFacts,
    NoPrefixCache,
    SlotCapacity,
)
from prefold.backends.errors import BackendError
from prefold.prefix_index.block_lru import BlockLru
from prefold.prefix_index.index import CacheModel, PrefixIndex
from prefold.prefix_index.slots import SlotCache
from prefold.proxy.catalog import ModelCatalog
from prefold.proxy.errors import NotEncodable

log = logging.getLogger(__name__)

# Scripts, digits, emoji and white space that tokenizers are known to treat differently; with and
# without a system message, since some templates put in one of their own.
PROBE_CHATS: tuple[tuple[dict[str, str], ...], ...] = (
    ({"role": "user", "content": "Hello, how are you? 12345 ٣٤٥ 1,000.5"},),
    (
        {"role": "system", "content": "You are terse.\n\n\tdef f(x):\n\t\treturn x**2  # café"},
        {"role": "user", "content": "안녕하세요 你好 こんにちは שלום 👩‍👩‍👧‍👦"},
        {"role": "assistant", "content": "  Two  spaces, and a tail.  "},
        {"role": "user", "content": "e\u0301 versus é; <|im_end|> in a text"},
    ),
)


class Fleet:
    def __init__(
        self,
        *,
        index: PrefixIndex,
        catalog: ModelCatalog,
        endpoint: Callable[[Backend], Endpoint],
        default_capacity_tokens: int,
        default_block_tokens: int,
    ) -> None:
        self._index = index
        self._catalog = catalog
        self._endpoint = endpoint
        self._default_capacity_tokens = default_capacity_tokens
        self._default_block_tokens = default_block_tokens

    async def ready(self, backend: Backend, facts: EngineFacts, restarted: bool) -> bool:
        """A mode, and an empty model of its cache if it restarted. False: ask again."""
        settled = True
        try:
            difference = await self._first_difference(backend, facts)
        except BackendError as error:
            difference, settled = f"tokens could not be compared: {error}", False
        # Only now, and at once: requests may be on their way meanwhile.
        backend.mode = Mode.APPROXIMATE if difference else Mode.FEEDBACK
        backend.mode_reason = difference or "the engine's tokens equal ours"
        if difference:
            log.warning("backend %s: %s", backend.name, difference)
        if isinstance(facts.capacity, NoPrefixCache):
            self._index.remove(backend.name)
        elif restarted:
            self._index.set_cache(backend.name, *self._cache_model(facts.capacity))
        return settled

    async def _first_difference(self, backend: Backend, facts: EngineFacts) -> str:
        for served in facts.models:
            engine = backend.engine.name if backend.engine is not None else ""
            await self._catalog.prepare(served.id, served.tokenizer_source, engine)
            difference = await self._difference(backend, served.id)
            if difference:
                return f"model {served.id}: {difference}"
        return ""

    def _cache_model(self, capacity: Capacity | None) -> tuple[CacheModel, int]:
        """And the tokens of its blocks."""
        if isinstance(capacity, SlotCapacity):
            return SlotCache(slots=capacity.slots, context_tokens=capacity.context_tokens), 1
        tokens, block = self._default_capacity_tokens, self._default_block_tokens
        if isinstance(capacity, BlockCapacity):
            tokens, block = capacity.blocks * capacity.block_tokens, capacity.block_tokens
        return BlockLru(capacity_tokens=tokens, block_tokens=block), block

    async def _difference(self, backend: Backend, model: str) -> str:
        """Why tokens are not exact here; "" if they are. Raises BackendError."""
        encoder = self._catalog.encoder(model)
        if encoder is None:
            return self._catalog.problem(model)
        if backend.engine is None:
            return "the engine is not known"
        if not self._catalog.prepares_as(model, backend.engine.name):
            return "the model's chats are prepared as another engine does"
        endpoint = self._endpoint(backend)
        try:
            for chat in PROBE_CHATS:
                theirs = await backend.engine.chat_tokens(endpoint, model, chat)
                if theirs is None:
                    return "the engine does not tell its tokens"
                ours = await encoder.encode_chat([dict(message) for message in chat], None, {})
                if ours.tolist() != theirs:
                    return "the engine's tokens differ from ours"
        except NotEncodable as error:
            return f"tokens could not be compared: {error}"
        return ""
