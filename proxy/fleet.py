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
from prefold.backends.kv_events.discovery import NoEvents, discover
from prefold.backends.kv_events.subscriber import Source
from prefold.prefix_index.block_lru import BlockLru
from prefold.prefix_index.index import CacheModel, PrefixIndex
from prefold.prefix_index.slots import SlotCache
from prefold.proxy.catalog import ModelCatalog
from prefold.proxy.errors import NotEncodable
from prefold.proxy.kv_events import Feeds

log = logging.getLogger(__name__)
EXACT = "the engine's tokens equal ours"

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
        secret: bytes,
    ) -> None:
        self._index = index
        self._catalog = catalog
        self._endpoint = endpoint
        self._default_capacity_tokens = default_capacity_tokens
        self._default_block_tokens = default_block_tokens
        self._followed: dict[str, Backend] = {}
        self.feeds = Feeds(secret=secret, on_change=self._events_changed)
        """To be entered, and left, by who made the fleet."""

    async def ready(self, backend: Backend, facts: EngineFacts, restarted: bool) -> bool:
        """A mode, and an empty model of its cache if it restarted. False: ask again."""
        settled, source, no_events = True, None, ""
        try:
            difference = await self._first_difference(backend, facts)
        except BackendError as error:
            difference, settled = f"tokens could not be compared: {error}", False
        if not difference:
            try:
                source = await self._source(backend, facts)
            except NoEvents as error:
                no_events = f"; no KV events: {error}"
            except BackendError as error:
                no_events, settled = f"; no KV events: {error}", False
        # Only now, and at once: requests may be on their way meanwhile.
        was_told = backend.mode is Mode.EVENTS
        backend.mode = Mode.APPROXIMATE if difference else Mode.FEEDBACK
        backend.mode_reason = difference or EXACT + no_events
        if difference:
            log.warning("backend %s: %s", backend.name, difference)
        if isinstance(facts.capacity, NoPrefixCache):
            self._index.remove(backend.name)
        elif restarted or was_told:
            self._index.set_cache(backend.name, *self._cache_model(facts.capacity))
        if source is not None and isinstance(facts.capacity, BlockCapacity):
            self._follow(backend, source, facts.capacity)
        else:
            self.feeds.close(backend.name)
        return settled

    async def _source(self, backend: Backend, facts: EngineFacts) -> Source | None:
        """Where its KV events are to be had; None where they are not wanted. Raises NoEvents, and
        BackendError."""
        source = backend.event_source
        if source is not None and not isinstance(facts.capacity, BlockCapacity):
            raise NoEvents("the engine does not tell the size of its blocks")
        return await discover(self._endpoint(backend)) if source == "ask" else source

    def _follow(self, backend: Backend, source: Source, capacity: BlockCapacity) -> None:
        self._followed[backend.name] = backend
        cache = self.feeds.open(
            backend.name,
            source,
            block_tokens=capacity.block_tokens,
            capacity_tokens=capacity.blocks * capacity.block_tokens,
        )
        self._events_changed(backend.name, cache.problem)

    def _events_changed(self, name: str, problem: str) -> None:
        """The cache model is the events' while they are worth something, else a fresh guess."""
        backend, feed = self._followed[name], self.feeds.get(name)
        if feed is None:
            return
        cache = feed.cache
        if not problem:
            backend.mode = Mode.EVENTS
            backend.mode_reason = "the engine tells what its cache holds"
            self._index.set_cache(name, cache, cache.block_tokens)
            return
        if backend.mode is Mode.EVENTS:
            size = BlockCapacity(
                blocks=cache.capacity_tokens // cache.block_tokens, block_tokens=cache.block_tokens
            )
            self._index.set_cache(name, *self._cache_model(size))
        backend.mode = Mode.FEEDBACK
        backend.mode_reason = f"{EXACT}; KV events: {problem}"

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
