"""What one index tells others of its placements, so that several processes believe the same.

Knows nothing of how deltas travel. Their keys are chained from a seed under the deployment's
secret: they mean the same to whoever has that secret, and nothing to others.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial

import msgspec
import numpy as np

from prefold.prefix_index.index import RIGHT, CacheModel, Correction, Placement, PrefixIndex
from prefold.prefix_index.prefix import Prefix

KEY_BYTES = 8


class Placed(msgspec.Struct, array_like=True, frozen=True, tag="placed"):
    """A prompt went to a backend. `number` is the sender's own, for `Finished`.

    `units`: token ids, 32 bits each, where `unit_tokens` is 1; else the keys of its full blocks,
    64 bits each. Both in the machine's byte order. `length` is in tokens.
    """

    backend: str
    number: int
    unit_tokens: int
    length: int
    seed: int
    units: bytes

    def prefix(self) -> Prefix:
        """Raises ValueError if the units are not as many as they should be."""
        if self.unit_tokens == 1:
            return Prefix.of_tokens(np.frombuffer(self.units, dtype=np.uint32), self.seed)
        if len(self.units) % KEY_BYTES:
            raise ValueError("keys are cut")
        keys = memoryview(self.units).cast("Q")
        return Prefix.of_blocks(keys, self.unit_tokens, self.length)


class Finished(msgspec.Struct, array_like=True, frozen=True, tag="finished"):
    """It ended. `computed` as in `CacheModel.finish`."""

    backend: str
    number: int
    computed: bool


class Corrected(msgspec.Struct, array_like=True, frozen=True, tag="corrected"):
    """Before it ended, the engine reported what was cached of it. Only told where that taught the
    sender something. As in `CacheModel.correct`."""

    backend: str
    number: int
    cached_tokens: int
    generated_tokens: int


Delta = Placed | Finished | Corrected


def placed(backend: str, number: int, prefix: Prefix, block_tokens: int) -> Placed:
    """The least of a prompt that a cache of such blocks needs to know."""
    exact = block_tokens == 1
    return Placed(
        backend=backend,
        number=number,
        unit_tokens=block_tokens,
        length=prefix.length,
        seed=prefix.seed if exact else 0,
        units=(
            prefix.units.astype(np.uint32, copy=False).tobytes()
            if exact
            else array("Q", prefix.chain(block_tokens)).tobytes()
        ),
    )


class SharedIndex(PrefixIndex):
    """Tells what is begun and finished here, and takes in what others tell, by their names."""

    def __init__(
        self, tell: Callable[[Callable[[], Delta]], None], ask: Callable[[str], None]
    ) -> None:
        """`tell` is given what makes a delta, to be called later: a long prompt's takes 50 us, for
        which no request should wait. `ask` is called with a backend whose cache model is new here:
        others may know what it holds."""
        super().__init__()
        self._tell = tell
        self._ask = ask
        self._blocks: dict[str, int] = {}
        self._numbers = 0
        self._ours: dict[Placement, int] = {}
        self._theirs: dict[int, dict[int, tuple[str, Placement]]] = {}

    def set_cache(self, backend: str, cache: CacheModel, block_tokens: int = 1) -> None:
        super().set_cache(backend, cache, block_tokens)
        self._blocks[backend] = block_tokens
        self._ask(backend)

    def begin(self, backend: str, prefix: Prefix, now: float) -> Placement | None:
        placement = super().begin(backend, prefix, now)
        if placement is not None:
            number = self._numbers = self._numbers + 1
            self._ours[placement] = number
            self._tell(partial(placed, backend, number, prefix, self._blocks[backend]))
        return placement

    def finish(
        self, backend: str, placement: Placement, now: float, *, computed: bool = True
    ) -> None:
        super().finish(backend, placement, now, computed=computed)
        number = self._ours.pop(placement, None)
        if number is not None:
            self._tell(partial(Finished, backend, number, computed))

    def correct(
        self,
        backend: str,
        placement: Placement,
        cached_tokens: int,
        now: float,
        *,
        generated_tokens: int = 0,
    ) -> Correction:
        made = super().correct(
            backend, placement, cached_tokens, now, generated_tokens=generated_tokens
        )
        number = self._ours.get(placement)
        if made is not RIGHT and number is not None:
            self._tell(partial(Corrected, backend, number, cached_tokens, generated_tokens))
        return made

    def take_in(self, source: int, delta: Delta, now: float) -> None:
        """What another one told. Of a backend that is not known here, or modelled in other blocks,
        nothing is learned."""
        if isinstance(delta, Finished):
            self._end(source, delta.number, now, computed=delta.computed)
        elif isinstance(delta, Corrected):
            self._take_in_correction(source, delta, now)
        elif self._blocks.get(delta.backend) == delta.unit_tokens:
            try:
                placement = super().begin(delta.backend, delta.prefix(), now)
            except ValueError:
                return
            if placement is not None:
                theirs = self._theirs.setdefault(source, {})
                theirs[delta.number] = delta.backend, placement

    def _take_in_correction(self, source: int, delta: Corrected, now: float) -> None:
        known = self._theirs.get(source, {}).get(delta.number)
        if known is not None:
            backend, placement = known
            super().correct(
                backend,
                placement,
                delta.cached_tokens,
                now,
                generated_tokens=delta.generated_tokens,
            )

    def forget(self, source: int, now: float) -> None:
        """Its deltas end here: what it had under way is not believed to be computed."""
        for number in list(self._theirs.pop(source, {}).items()):
            backend, placement = number[1]
            super().finish(backend, placement, now, computed=False)

    def under_way(self) -> int:
        """Placements of others that are not finished."""
        return sum(len(theirs) for theirs in self._theirs.values())

    def _end(self, source: int, number: int, now: float, *, computed: bool) -> None:
        known = self._theirs.get(source, {}).pop(number, None)
        if known is not None:
            super().finish(known[0], known[1], now, computed=computed)


class _Entry:
    __slots__ = ("done", "placed", "source")

    def __init__(self, source: int, placed: Placed) -> None:
        self.source = source
        self.placed = placed
        self.done = False


class Journal:
    """The placements that a cache's content follows from, for indexes that start later. Mutable.

    In an LRU what was touched last is what is held, so replaying the latest placements in the order
    of their last touch gives an empty model what a model that lived through all of them holds, as
    long as nothing was dropped to keep within `max_bytes` for each backend. A prompt that a later
    one continues is not kept.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: dict[str, OrderedDict[tuple[int, int], _Entry]] = {}
        self._bytes: dict[str, int] = {}
        self._latest: dict[tuple[str, int, bytes], tuple[int, int]] = {}
        """By backend and first unit: the placement finished last."""

    def note(self, source: int, delta: Delta) -> None:
        """Corrections are not kept: what they said of then is no news to one who starts later."""
        if isinstance(delta, Corrected):
            return
        key = source, delta.number
        entries = self._entries.setdefault(delta.backend, OrderedDict())
        if isinstance(delta, Placed):
            entries[key] = _Entry(source, delta)
            self._count(delta.backend, len(delta.units))
            while self._bytes[delta.backend] > self._max_bytes and len(entries) > 1:
                self._drop(delta.backend, next(iter(entries)))
        elif (entry := entries.get(key)) is not None:
            if delta.computed:
                entry.done = True
                entries.move_to_end(key)
                self._supersede(key, entry.placed)
            else:
                self._drop(delta.backend, key)

    def forget(self, source: int) -> None:
        """It will finish nothing any more."""
        for backend, entries in self._entries.items():
            for key in [key for key, entry in entries.items() if key[0] == source]:
                if not entries[key].done:
                    self._drop(backend, key)

    def clear(self, backend: str) -> None:
        """The backend lost everything."""
        for key in list(self._entries.get(backend, ())):
            self._drop(backend, key)

    def replay(self, backend: str) -> Iterator[tuple[int, list[Delta]]]:
        """By source, in order."""
        for (source, number), entry in self._entries.get(backend, {}).items():
            done: list[Delta] = [Finished(backend, number, True)] if entry.done else []
            yield source, [entry.placed, *done]

    def backends(self) -> list[str]:
        return list(self._entries)

    def _supersede(self, key: tuple[int, int], placed: Placed) -> None:
        """The latest one with the same beginning, if this one continues or repeats it."""
        place = _place(placed)
        before = self._latest.get(place)
        self._latest[place] = key
        old = self._entries[placed.backend].get(before) if before is not None else None
        if (
            old is not None
            and old.placed is not placed
            and old.placed.seed == placed.seed
            and placed.units.startswith(old.placed.units)
        ):
            self._drop(placed.backend, (old.source, old.placed.number))

    def _drop(self, backend: str, key: tuple[int, int]) -> None:
        entry = self._entries[backend].pop(key)
        self._count(backend, -len(entry.placed.units))
        place = _place(entry.placed)
        if self._latest.get(place) == key:
            del self._latest[place]

    def _count(self, backend: str, size: int) -> None:
        self._bytes[backend] = self._bytes.get(backend, 0) + size


def _place(placed: Placed) -> tuple[str, int, bytes]:
    return placed.backend, placed.seed, placed.units[:8]
