"""What happens when a backend becomes ready: its cache is modelled, its tokens are checked.

The verdict is the backend's mode: exact tokens only where the engine itself, asked for the ids of a
few conversations, gives the ones that we make.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

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
from prefold.backends.kv_events.discovery import NoEvents
from prefold.backends.kv_events.subscriber import Source
from prefold.prefix_index.aged_events import AgedEvents
from prefold.prefix_index.block_lru import BlockLru
from prefold.prefix_index.index import CacheModel, PrefixIndex
from prefold.prefix_index.reuse import ReuseEstimate
from prefold.prefix_index.slots import SlotCache
from prefold.proxy.catalog import DIALECTS, ModelCatalog
from prefold.proxy.errors import NotEncodable
from prefold.proxy.kv_events import Feeds

log = logging.getLogger(__name__)
DOUBT_S = 300.0
"""How long events that were wrong are not believed, at first."""
MAX_DOUBT_S = 3600.0
GUESS_FACTOR = 4
"""A capacity that is only the settings' guess may be found to be so many times as large."""
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


@dataclass(slots=True, kw_only=True)
class _Doubt:
    until: float
    wait_s: float
    active: bool = True


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
        # What is asked for again is the traffic's, not the backend's. Slots count in tokens.
        self._block_reuse = ReuseEstimate()
        self._slot_reuse = ReuseEstimate()
        self._followed: dict[str, Backend] = {}
        self.doubted: dict[str, _Doubt] = {}
        """Backends whose events said something else than their answers."""
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
        if restarted:
            backend.prediction.reset()
            self.doubted.pop(backend.name, None)
            if backend.facts is not None:
                log.info("backend %s began anew: its cache is believed to be empty", backend.name)
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
        if source != "ask":
            return source
        if backend.engine is None:
            raise NoEvents("the engine is not known")
        return await backend.engine.event_source(self._endpoint(backend))

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
        if not problem and (doubt := self.doubted.get(name)) is not None and doubt.active:
            problem = "they are not what the engine reports"
        if not problem:
            backend.mode = Mode.EVENTS
            backend.mode_reason = "the engine tells what its cache holds"
            backend.prediction.reset()
            guess = BlockLru(cache.capacity_tokens, cache.block_tokens, reuse=self._block_reuse)
            self._index.set_cache(name, AgedEvents(cache, guess), cache.block_tokens)
            return
        if backend.mode is Mode.EVENTS:
            backend.prediction.reset()
            size = BlockCapacity(
                blocks=cache.capacity_tokens // cache.block_tokens, block_tokens=cache.block_tokens
            )
            self._index.set_cache(name, *self._cache_model(size))
        backend.mode = Mode.FEEDBACK
        backend.mode_reason = f"{EXACT}; KV events: {problem}"

    def doubt_events(self, backend: Backend, now: float) -> None:
        """What they say is not what the engine reports: a guess takes over for some minutes, twice
        as many each time."""
        before = self.doubted.get(backend.name)
        wait_s = DOUBT_S if before is None else min(before.wait_s * 2, MAX_DOUBT_S)
        self.doubted[backend.name] = _Doubt(until=now + wait_s, wait_s=wait_s)
        self._events_changed(backend.name, "")
        log.warning("backend %s: mode %s: %s", backend.name, backend.mode, backend.mode_reason)

    def try_events_again(self, backend: Backend, now: float) -> None:
        """If it is time to."""
        doubt = self.doubted.get(backend.name)
        if doubt is None or not doubt.active or now < doubt.until:
            return
        doubt.active = False
        feed = self.feeds.get(backend.name)
        if feed is not None:
            self._events_changed(backend.name, feed.cache.problem)
            log.info("backend %s: mode %s: %s", backend.name, backend.mode, backend.mode_reason)

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
            slots = SlotCache(
                slots=capacity.slots, context_tokens=capacity.context_tokens, reuse=self._slot_reuse
            )
            return slots, 1
        if isinstance(capacity, BlockCapacity):
            tokens, block = capacity.blocks * capacity.block_tokens, capacity.block_tokens
            return BlockLru(tokens, block, reuse=self._block_reuse), block
        tokens, block = self._default_capacity_tokens, self._default_block_tokens
        most = tokens * GUESS_FACTOR
        return BlockLru(tokens, block, most_tokens=most, reuse=self._block_reuse), block

    async def _difference(self, backend: Backend, model: str) -> str:
        """Why tokens are not exact here; "" if they are. Raises BackendError."""
        if backend.engine is not None and backend.engine.name not in DIALECTS:
            return "how this kind of engine prepares chats is not known"
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
