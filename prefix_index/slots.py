"""A prefix cache as llama.cpp's server: a few slots, each with one sequence, reused to the token.

As with `cache_ram` 0. What a slot generated is in its cache too, but is not known here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from prefold.prefix_index.index import NOTHING, Placement, PrefixMatch
from prefold.prefix_index.prefix import Prefix

FIRST_STEP = 1024
"""Units compared at first: few prompts part later than that, unless they part much later."""


@dataclass(slots=True, eq=False)
class _Slot:
    prefix: Prefix | None = None
    held: int = 0
    """So many tokens of `prefix` are in the slot."""
    busy: Placement | None = None
    kept: int = 0
    """While busy: so many of them were there before."""
    released: float = float("-inf")

    def common(self, prefix: Prefix) -> int:
        """Leading tokens of the prompt that are in this slot."""
        return 0 if self.prefix is None else min(self.held, common_tokens(self.prefix, prefix))

    def may_exceed(self, tokens: int, prefix: Prefix) -> bool:
        """Whether more than so many can be common: a look at one unit rules most slots out."""
        if self.prefix is None or self.held <= tokens or prefix.length <= tokens:
            return False
        unit = tokens // prefix.unit_tokens
        theirs, ours = self.prefix.units, prefix.units
        return unit < min(len(theirs), len(ours)) and bool(theirs[unit] == ours[unit])


class SlotCache:
    """A request takes the idle slot with the longest common prefix, if that is more than
    `similarity` of the prompt, else the idle slot released longest ago (of those never used, the
    last). What its slot has in common with it is reused either way.

    If all are busy it waits, first come first served. Which slot will be released first is not
    known, so the one with the longest common prefix of all is assumed: true for a burst on one
    prefix, optimistic for others.
    """

    def __init__(self, slots: int, context_tokens: int, *, similarity: float = 0.10) -> None:
        """`context_tokens` is that of one slot; `similarity` is `--slot-prompt-similarity`.
        Raises ValueError if there is no slot or no context."""
        if slots < 1 or context_tokens < 1:
            raise ValueError(f"no cache of {slots} slots with {context_tokens} tokens")
        self._count = slots
        self._context = context_tokens
        self._similarity = similarity
        self.clear()

    def __repr__(self) -> str:
        busy = sum(slot.busy is not None for slot in self._slots)
        return (
            f"<SlotCache {self.size_tokens}/{self.capacity_tokens} tokens,"
            f" {busy} of {self._count} slots busy, {len(self._waiting)} requests waiting>"
        )

    @property
    def size_tokens(self) -> int:
        return sum(slot.held for slot in self._slots)

    @property
    def capacity_tokens(self) -> int:
        return self._count * self._context

    def clear(self) -> None:
        """All slots are idle afterwards: an engine that lost its cache lost its requests."""
        self._slots = [_Slot() for _ in range(self._count)]
        self._waiting: deque[Placement] = deque()
        self._era = object()
        self._chosen: tuple[Prefix, _Slot, int] | None = None

    def match(self, prefix: Prefix) -> PrefixMatch:
        """At most length - 1 tokens, since the last one is always recomputed; lost is what the slot
        that it takes holds of something else."""
        if not self._fits(prefix):
            return NOTHING
        slot, common = self._choose(prefix)
        return PrefixMatch(min(common, max(prefix.length - 1, 0)), slot.held - common)

    def begin(self, prefix: Prefix, now: float) -> Placement:
        """Its slot is busy and holds this prompt from here on, or it waits for one. A prompt too
        long for a slot is refused by the engine and changes nothing."""
        placement = Placement(prefix, self.match(prefix).cached_tokens, self._era)
        if self._fits(prefix):
            self._waiting.append(placement)
            self._serve()
        return placement

    def finish(self, placement: Placement, now: float, *, computed: bool = True) -> None:
        """Not computed: of the prompt, only what its slot had before is believed to be there, and
        nothing of what it had besides, since the engine may have begun to overwrite it."""
        if not placement.open or placement.era is not self._era:
            return
        placement.open = False
        for slot in self._slots:
            if slot.busy is placement:
                slot.busy = None
                if computed:
                    slot.released = now
                else:
                    slot.held = slot.kept
                self._chosen = None
                self._serve()
                return
        if placement in self._waiting:
            self._waiting.remove(placement)

    def _fits(self, prefix: Prefix) -> bool:
        """The engine wants room for at least one generated token."""
        return prefix.length < self._context

    def _serve(self) -> None:
        """Those who wait take slots while there are idle ones."""
        while self._waiting and any(slot.busy is None for slot in self._slots):
            placement = self._waiting.popleft()
            slot, common = self._choose(placement.prefix)
            slot.prefix, slot.held = placement.prefix, placement.prefix.length
            slot.busy, slot.kept = placement, common
            self._chosen = None

    def _choose(self, prefix: Prefix) -> tuple[_Slot, int]:
        """The slot that this prompt would take now, and what they have in common."""
        if self._chosen is not None and self._chosen[0] is prefix:
            return self._chosen[1:]
        idle = [slot for slot in self._slots if slot.busy is None]
        slot, common = _longest(idle or self._slots, prefix)
        if idle and common / max(prefix.length, 1) <= self._similarity:
            slot = min(reversed(idle), key=lambda slot: slot.released)
            common = slot.common(prefix)
        self._chosen = prefix, slot, common
        return slot, common


def _longest(slots: Sequence[_Slot], prefix: Prefix) -> tuple[_Slot, int]:
    """The first of those with the longest common prefix."""
    best, most = slots[0], slots[0].common(prefix)
    for slot in slots[1:]:
        if slot.may_exceed(most, prefix):
            common = slot.common(prefix)
            if common > most:
                best, most = slot, common
    return best, most


def common_tokens(held: Prefix, asked: Prefix) -> int:
    """Length of the longest common prefix; 0 if they are of different namespaces or units."""
    if held.seed != asked.seed or held.unit_tokens != asked.unit_tokens:
        return 0
    end = min(len(held.units), len(asked.units))
    start, step = 0, FIRST_STEP
    while start < end:
        stop = min(start + step, end)
        differs = held.units[start:stop] != asked.units[start:stop]
        first = int(differs.argmax())
        if differs[first]:
            end = start + first
            break
        start, step = stop, step * 4
    return min(end * held.unit_tokens, held.length, asked.length)
