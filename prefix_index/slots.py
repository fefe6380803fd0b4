"""A prefix cache as llama.cpp's server: a few slots, each with one sequence, reused to the token.

As with `cache_ram` 0. What a slot generated is in its cache too: not its tokens are known here, but
how many they are, once the engine has told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from prefold.prefix_index.index import (
    NOTHING,
    RIGHT,
    Correction,
    Placement,
    PrefixMatch,
)
from prefold.prefix_index.prefix import Prefix
from prefold.prefix_index.reuse import ReuseEstimate

FIRST_STEP = 1024
"""Units compared at first: few prompts part later than that, unless they part much later."""


class _Content(NamedTuple):
    """Of a slot: so many tokens of a prompt, and so many of the answer behind all of it."""

    prefix: Prefix | None = None
    held: int = 0
    answer: int = 0

    @property
    def size(self) -> int:
        return self.held + self.answer

    def common(self, prefix: Prefix) -> int:
        """Leading tokens of the prompt that are there. A prompt that goes on after all of the one
        before, for longer than its answer, is taken for its conversation's next turn, which repeats
        that answer."""
        if self.prefix is None:
            return 0
        common = min(self.held, common_tokens(self.prefix, prefix))
        if self.answer and common == self.held and prefix.length > self.size:
            common = self.size
        return common

    def may_exceed(self, tokens: int, prefix: Prefix) -> bool:
        """Whether more than so many can be common: a look at one unit rules most slots out."""
        if self.prefix is None or self.size <= tokens or prefix.length <= tokens:
            return False
        if self.answer and tokens >= self.held:
            return True
        unit = tokens // prefix.unit_tokens
        theirs, ours = self.prefix.units, prefix.units
        return unit < min(len(theirs), len(ours)) and bool(theirs[unit] == ours[unit])


EMPTY = _Content()


class _Slot:
    __slots__ = ("before", "busy", "kept", "now", "released", "uses")

    def __init__(self) -> None:
        self.now = EMPTY
        self.busy: Placement | None = None
        self.before = EMPTY
        """While busy: what it held when that began."""
        self.kept = 0
        """While busy: so many tokens of that are reused."""
        self.released = float("-inf")
        self.uses = 0
        """Requests in a row that went on with what it holds."""

    def take(self, placement: Placement, common: int) -> None:
        self.before, self.busy, self.kept = self.now, placement, common
        self.now = _Content(placement.prefix, placement.prefix.length)

    @property
    def at_first(self) -> _Content:
        """What a request that began when this one's did could have found."""
        return self.now if self.busy is None else self.before


class SlotCache:
    """A request takes the idle slot with the longest common prefix, if that is more than
    `similarity` of the prompt, else the idle slot released longest ago (of those never used, the
    last). What its slot has in common with it is reused either way.

    If all are busy it waits, first come first served. Which slot will be released first is not
    known, so the one with the longest common prefix of all is assumed: true for a burst on one
    prefix, optimistic for others.

    Requests may reach the engine in another order than they were sent, and others use it too, so a
    slot may be another one than was assumed. What was reported as cached tells: it is put right by
    `correct`, before anything else is to be found there.
    """

    def __init__(
        self,
        slots: int,
        context_tokens: int,
        *,
        similarity: float = 0.10,
        reuse: ReuseEstimate | None = None,
    ) -> None:
        """`context_tokens` is that of one slot; `similarity` is `--slot-prompt-similarity`; `reuse`
        learns from these slots, and says what is in them is worth (None: as if asked for again).
        Raises ValueError if there is no slot or no context."""
        if slots < 1 or context_tokens < 1:
            raise ValueError(f"no cache of {slots} slots with {context_tokens} tokens")
        self._count = slots
        self._context = context_tokens
        self._similarity = similarity
        self._reuse = reuse
        self.clear()

    def __repr__(self) -> str:
        busy = sum(slot.busy is not None for slot in self._slots)
        return (
            f"<SlotCache {self.size_tokens}/{self.capacity_tokens} tokens,"
            f" {busy} of {self._count} slots busy, {len(self._waiting)} requests waiting>"
        )

    @property
    def size_tokens(self) -> int:
        return sum(slot.now.size for slot in self._slots)

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
        reusable = min(common, max(prefix.length - 1, 0))
        return PrefixMatch(reusable, self._worth(slot, slot.now.size - common))

    def begin(self, prefix: Prefix, now: float) -> Placement:
        """Its slot is busy and holds this prompt from here on, or it waits for one. A prompt too
        long for a slot is refused by the engine and changes nothing."""
        self._pass_time(now)
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
        self._pass_time(now)
        for slot in self._slots:
            if slot.busy is placement:
                slot.busy, slot.before = None, EMPTY
                if computed:
                    slot.released = now
                else:
                    slot.now = _Content(slot.now.prefix, slot.kept)
                self._chosen = None
                self._serve()
                return
        if placement in self._waiting:
            self._waiting.remove(placement)

    def correct(
        self, placement: Placement, cached_tokens: int, now: float, *, generated_tokens: int = 0
    ) -> Correction:
        """Of the answer, all but the last token is in the slot: that one was never computed on."""
        slot = next((slot for slot in self._slots if slot.busy is placement), None)
        if slot is None or not placement.open:
            return RIGHT
        prefix = placement.prefix
        expected = min(slot.kept, max(prefix.length - 1, 0))
        # An answer that did not come again as it was is no sign of anything.
        least = min(expected, slot.before.held)
        made = RIGHT
        if not least <= cached_tokens <= expected:
            made = Correction(lost_tokens=max(expected - cached_tokens, 0))
            other = self._holder_of(slot, prefix, cached_tokens)
            if other is not None:
                slot = self._move(slot, other, lost=cached_tokens < least)
            elif cached_tokens < least:
                self._empty_older(slot)
            slot.kept = cached_tokens
        if generated_tokens > 1:
            slot.now = slot.now._replace(answer=generated_tokens - 1)
            made = made if made is not RIGHT else Correction()
        self._chosen = None
        return made

    def _holder_of(self, slot: _Slot, prefix: Prefix, tokens: int) -> _Slot | None:
        """Another slot in which exactly so many were to be found: of several, the idle one that was
        released longest ago, as the engine takes where nothing is similar."""
        found = [
            other
            for other in self._slots
            if other is not slot and tokens and other.at_first.common(prefix) == tokens
        ]
        return min(found, key=lambda other: (other.busy is not None, other.released), default=None)

    def _empty_older(self, lost: _Slot) -> None:
        """Another's request had taken a slot: it takes the one released longest ago, so those
        released before that one were taken earlier."""
        for slot in self._slots:
            if slot.busy is None and slot.released < lost.released:
                slot.now = EMPTY

    def _move(self, slot: _Slot, other: _Slot, *, lost: bool) -> _Slot:
        """The request is in `other`, and who was believed to be there is in its slot. `lost`: what
        its slot was believed to hold would have been better, so it is not there."""
        placement, stranger = slot.busy, other.busy
        assert placement is not None
        slot.now, slot.before = EMPTY if lost else slot.before, EMPTY
        slot.busy = None
        if stranger is not None:
            other.now, other.busy = other.before, None
            slot.take(stranger, slot.now.common(stranger.prefix))
        other.take(placement, other.now.common(placement.prefix))
        return other

    def _pass_time(self, now: float) -> None:
        if self._reuse is not None:
            self._reuse.now = max(self._reuse.now, now)

    def _worth(self, slot: _Slot, tokens: int) -> float:
        """How many of these, which it holds and would lose, are expected to be asked for again."""
        if self._reuse is None or not tokens:
            return tokens
        return tokens * self._reuse.value(slot.uses, self._reuse.now - slot.released)

    def _learn(self, slot: _Slot, common: int, tokens: int) -> None:
        """It is about to be taken by a prompt of so many tokens."""
        reuse = self._reuse
        if reuse is None:
            return
        if slot.uses:
            age = reuse.now - slot.released
            reuse.reused(slot.uses, age, common)
            reuse.evicted(slot.uses, age, slot.now.size - common)
        goes_on = common > self._similarity * tokens
        slot.uses = slot.uses + 1 if goes_on else 1

    def _fits(self, prefix: Prefix) -> bool:
        """The engine wants room for at least one generated token."""
        return prefix.length < self._context

    def _serve(self) -> None:
        """Those who wait take slots while there are idle ones."""
        while self._waiting and any(slot.busy is None for slot in self._slots):
            placement = self._waiting.popleft()
            slot, common = self._choose(placement.prefix)
            self._learn(slot, common, placement.prefix.length)
            slot.take(placement, common)
            self._chosen = None

    def _choose(self, prefix: Prefix) -> tuple[_Slot, int]:
        """The slot that this prompt would take now, and what they have in common."""
        if self._chosen is not None and self._chosen[0] is prefix:
            return self._chosen[1:]
        idle = [slot for slot in self._slots if slot.busy is None]
        slot, common = _longest(idle or self._slots, prefix)
        if idle and common / max(prefix.length, 1) <= self._similarity:
            slot = min(reversed(idle), key=lambda slot: slot.released)
            common = slot.now.common(prefix)
        self._chosen = prefix, slot, common
        return slot, common


def _longest(slots: Sequence[_Slot], prefix: Prefix) -> tuple[_Slot, int]:
    """The first of those with the longest common prefix."""
    best, most = slots[0], slots[0].now.common(prefix)
    for slot in slots[1:]:
        if slot.now.may_exceed(most, prefix):
            common = slot.now.common(prefix)
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
