"""A prefix cache whose content is what its engine's events said.

The engine's own block hash is an opaque handle: it names the parent of a new block, and the block
that goes. What is looked up are our own keys, made of the events' token ids as `Prefix` makes them
of a prompt's.

An engine knows no tenants and no model names, only what its blocks are keyed by: tokens, an
adapter, a salt. So prompts that are matched here are seeded by those alone; `seed_of` says how.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from itertools import islice

import msgspec
import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from prefold.prefix_index.index import NOTHING, RIGHT, Correction, Placement, PrefixMatch
from prefold.prefix_index.prefix import Prefix
from prefold.prefix_index.promises import Promises

Handle = int | bytes

DEVICE_FACTOR = 2
"""A batch may tell of new blocks before it tells which ones went for them, and of reused blocks as
if they were new; an engine that is at so many times its capacity is not understood."""
HOST_FACTOR = 16
"""The same for host memory, in capacities of the device."""


class _Block(msgspec.Struct, gc=False):
    """One handle, and how many copies of it there are: an engine may compute a block twice."""

    key: int
    device: int = 0
    host: int = 0


class EventCache:
    """A prefix is held as far as its blocks are on the device without a gap, and from there on as
    far as they are in host memory: loading them is no prefill.

    What is sent is promised from `begin` on, so that a burst sees itself; the events then say how
    it is.

    Claims nothing while it is not trusted: events may be missing (`distrust`), there is content
    from before the first known event (`void`, not complete), or the engine's cache is of a kind
    that is not modelled (`refuse`). What is incomplete is complete again when all is cleared, or
    when as many blocks as the device holds were stored in a row that continue nothing unknown: then
    there is no old prefix left that is still in use.
    """

    def __init__(
        self,
        *,
        block_tokens: int,
        capacity_tokens: int,
        seed_of: Callable[[str | None, str | None], int],
    ) -> None:
        """`capacity_tokens` is the device's. An engine that says it holds far more is refused, so
        memory is bounded. `seed_of` an adapter's name and a salt is that of prompts sent with them.
        Raises ValueError unless at least one block fits."""
        if not 1 <= block_tokens <= capacity_tokens:
            raise ValueError(f"no block of {block_tokens} tokens fits {capacity_tokens} tokens")
        self.block_tokens = block_tokens
        self._capacity = capacity_tokens // block_tokens
        self._seed_of = seed_of
        self._distrusted = "not connected to the event stream yet"
        self._refused = ""
        self._complete = False
        self.orphans = 0
        """Blocks stored behind unknown ones, so that they could not be named. Only ever rises."""
        self._stored_in_a_row = 0
        self._device: dict[int, int] = {}
        """By key, the handles that have copies there: one, but for hash functions we know not."""
        self.clear()
        self._forget()

    def __repr__(self) -> str:
        return (
            f"<EventCache {self.size_tokens}/{self.capacity_tokens} tokens"
            f" in blocks of {self.block_tokens}, {self.problem or 'trusted'}>"
        )

    @property
    def problem(self) -> str:
        """Why nothing is claimed; "" if all is well."""
        if self._refused or self._distrusted:
            return self._refused or self._distrusted
        return "" if self._complete else "what the engine stored before is not known yet"

    @property
    def size_tokens(self) -> int:
        """On the device, each block once."""
        return len(self._device) * self.block_tokens

    @property
    def capacity_tokens(self) -> int:
        return self._capacity * self.block_tokens

    def match(self, prefix: Prefix) -> PrefixMatch:
        """Whole blocks, and at most length - 1 tokens: the last one is always recomputed."""
        if self.problem:
            return NOTHING
        chain = prefix.chain(self.block_tokens)
        on_device = _run(chain, 0, self._device, self._promises.count)
        known = _run(chain, on_device, self._host, ())
        used = self._copies + len(self._promises)
        evicted = min(max(used + len(chain) - on_device - self._capacity, 0), used)
        reusable = max(min(known, (prefix.length - 1) // self.block_tokens), 0)
        return PrefixMatch(reusable * self.block_tokens, evicted * self.block_tokens)

    def begin(self, prefix: Prefix, now: float) -> Placement:
        """Promises what is not held yet. Of a prompt larger than the cache, the head."""
        self._promises.expire(now)
        placement = Placement(prefix, self.match(prefix).cached_tokens, self._era)
        chain = prefix.chain(self.block_tokens)[: self._capacity]
        self._promises.begin(placement, [key for key in chain if key not in self._device])
        return placement

    def finish(self, placement: Placement, now: float, *, computed: bool = True) -> None:
        """Computed: its events may be on their way still. Otherwise its promise ends here."""
        if placement.open and placement.era is self._era:
            placement.open = False
            self._promises.finish(placement, now, computed=computed)
        self._promises.expire(now)

    def correct(
        self, placement: Placement, cached_tokens: int, now: float, *, generated_tokens: int = 0
    ) -> Correction:
        """Nothing: what the engine holds is only ever its own events' to say."""
        return RIGHT

    def clear(self) -> None:
        """The engine lost its requests. What it holds is only ever its own events' to say: who
        noticed a restart by other means may come after the first of them."""
        self._promises = Promises()
        self._era = object()

    def stored(
        self,
        handles: Sequence[Handle],
        parent: Handle | None,
        tokens: NDArray[np.uint32],
        block_tokens: int,
        *,
        host: bool = False,
        adapter: str | None = None,
        salt: str | None = None,
        foreign: Sequence[bytes] | None = None,
    ) -> None:
        """Consecutive blocks are held, the first one behind `parent` (None: a prompt begins).

        `tokens` are those of all of them. `foreign` is, for each block, what it is keyed by that no
        prompt of ours can have: nothing matches it, nor what follows. Raises ValueError if the
        counts do not fit.
        """
        if self._refused:
            return
        if block_tokens != self.block_tokens:
            self.refuse(f"its blocks are of {block_tokens} tokens, not {self.block_tokens}")
            return
        if len(tokens) != len(handles) * block_tokens or len(foreign or handles) != len(handles):
            raise ValueError("the tokens or keys are not those of the blocks")
        if parent is None:
            seed = self._seed_of(adapter, salt)
        elif (before := self._blocks.get(parent)) is not None:
            seed = before.key
        else:
            self.orphans += len(handles)
            self._stored_in_a_row = 0
            return
        for handle, key in zip(handles, self._keys(tokens, seed, foreign), strict=True):
            self._add(handle, key, host)
        if not host:
            self._stored_in_a_row += len(handles)
            self._complete = self._complete or self._stored_in_a_row >= self._capacity
        self._check_size()

    def copied_to_host(self, handles: Sequence[Handle]) -> None:
        """Known blocks are held in host memory too; unknown ones are passed over."""
        for handle in handles:
            if (block := self._blocks.get(handle)) is not None:
                self._add(handle, block.key, host=True)
        self._check_size()

    def removed(self, handles: Sequence[Handle], *, host: bool = False) -> None:
        """One copy of each is gone. Unknown ones are passed over."""
        for handle in handles:
            block = self._blocks.get(handle)
            if block is None:
                continue
            if host and block.host:
                block.host -= 1
                if not block.host:
                    _drop(self._host, block.key)
            elif not host and block.device:
                block.device -= 1
                self._copies -= 1
                if not block.device:
                    _drop(self._device, block.key)
                    self._promises.spent(block.key)
            if not block.device and not block.host:
                del self._blocks[handle]

    def cleared(self) -> None:
        """The engine says that it holds nothing any more, so what it holds is known."""
        self._forget()
        self._complete = True
        self._refused = ""

    def void(self, *, complete: bool) -> None:
        """All that was known is void. Not complete: the engine may hold what will not be told."""
        self._forget()
        self._complete = complete
        self._stored_in_a_row = 0
        if complete:
            self._refused = ""  # another engine, perhaps another model

    def distrust(self, reason: str) -> None:
        """Nothing is claimed until `trust`."""
        self._distrusted = reason

    def trust(self) -> None:
        """All events since the last `void` are known."""
        self._distrusted = ""

    def refuse(self, reason: str) -> None:
        """Nothing is claimed until the engine begins anew."""
        self._forget()
        self._refused = reason

    def _forget(self) -> None:
        """Also promises of what had come by now: it is gone again."""
        for key in self._device:
            self._promises.spent(key)
        self._blocks: dict[Handle, _Block] = {}
        self._device = {}
        self._host: dict[int, int] = {}
        self._copies = 0
        """On the device, of all blocks."""

    def _keys(
        self, tokens: NDArray[np.uint32], seed: int, foreign: Sequence[bytes] | None
    ) -> Sequence[int]:
        """In a chain each key is the next one's seed, so they go on from any."""
        if foreign is None:
            return Prefix.of_tokens(tokens, seed).chain(self.block_tokens)
        key, keys = seed, []
        for place, other in enumerate(foreign):
            if other:
                key = xxh3_64_intdigest(other, key)
            block = tokens[place * self.block_tokens : (place + 1) * self.block_tokens]
            key = Prefix.of_tokens(block, key).chain(self.block_tokens)[0]
            keys.append(key)
        return keys

    def _add(self, handle: Handle, key: int, host: bool) -> None:
        block = self._blocks.get(handle)
        if block is None:
            block = self._blocks[handle] = _Block(key)
        if host:
            if not block.host:
                self._host[block.key] = self._host.get(block.key, 0) + 1
            block.host += 1
        else:
            if not block.device:
                self._device[block.key] = self._device.get(block.key, 0) + 1
            block.device += 1
            self._copies += 1

    def _check_size(self) -> None:
        if (
            self._copies > self._capacity * DEVICE_FACTOR
            or len(self._host) > self._capacity * HOST_FACTOR
        ):
            self.refuse("it says that it holds more than it has room for")


def _run(chain: Sequence[int], start: int, held: Container[int], also: Container[int]) -> int:
    """The first place from `start` on whose block is in neither."""
    place = start
    for key in islice(chain, start, None):
        if key not in held and key not in also:
            break
        place += 1
    return place


def _drop(held: dict[int, int], key: int) -> None:
    held[key] -= 1
    if not held[key]:
        del held[key]
