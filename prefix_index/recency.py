"""One LRU order of runs with a border in it: what is younger is believed to be in the engine's
cache, what is older is doubted, but remembered.

A run comes after its descendants, so the oldest one is a leaf. Sizes are in blocks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

from prefold.prefix_index.reuse import ReuseEstimate
from prefold.prefix_index.room import Room
from prefold.prefix_index.runs import Run

VICTIMS = 32
"""Runs that are looked at to tell what would be evicted; the rest is taken to be like them."""


class Recency:
    """Mutable. As much is believed as there is room for, and remembered as there can ever be."""

    __slots__ = (
        "_believed",
        "_reuse",
        "clock",
        "demoted",
        "doubted",
        "doubted_size",
        "now",
        "room",
        "size",
    )

    def __init__(self, room: Room, reuse: ReuseEstimate | None) -> None:
        """`reuse` None: whatever is evicted counts as asked for again."""
        self.room = room
        self._reuse = reuse
        self.now = 0.0
        """Of what happens next."""
        self._believed: OrderedDict[Run, None] = OrderedDict()
        """Least recently used first."""
        self.doubted: OrderedDict[Run, None] = OrderedDict()
        """The same; all of them are older."""
        self.size = 0
        """Blocks that are believed; the next, that are doubted."""
        self.doubted_size = 0
        self.demoted = 0
        """Blocks that came to be doubted, ever."""
        self.clock = 0
        """Of the stamps; counts touches of runs."""

    def __len__(self) -> int:
        """Runs that are believed."""
        return len(self._believed)

    @property
    def oldest(self) -> int:
        """The stamp of what goes next; the clock if nothing is believed."""
        return next(iter(self._believed)).stamp if self._believed else self.clock

    def add(self, run: Run) -> None:
        """As the youngest of its side; `renew` it next."""
        if run.doubted:
            self.doubted[run] = None
            self.doubted_size += len(run.keys)
        else:
            self._believed[run] = None
            self.size += len(run.keys)

    def add_split(self, head: Run) -> None:
        """The first blocks of a run that is here, as one of their own; `renew` it next."""
        (self.doubted if head.doubted else self._believed)[head] = None

    def absorb(self, run: Run) -> None:
        """Its blocks are another run's of the same side from here on."""
        del (self.doubted if run.doubted else self._believed)[run]

    def renew(self, run: Run) -> None:
        """It was touched: the youngest of all, and believed."""
        self.clock += 1
        run.stamp = self.clock
        run.touched = self.now
        if run.doubted:
            run.doubted = False
            del self.doubted[run]
            self.doubted_size -= len(run.keys)
            self.size += len(run.keys)
            self._believed[run] = None
        else:
            self._believed.move_to_end(run)

    def ask_for(self, run: Run) -> None:
        """One more request wants it; before `renew`."""
        if self._reuse is None:
            return
        if run.uses and not run.doubted:
            self._reuse.reused(run.uses, self.now - run.touched, len(run.keys))
        run.uses += 1

    def worth(self, blocks: int, besides: Collection[Run]) -> float:
        """Of the oldest so many blocks that are believed, those of `besides` left out, how many are
        expected to be asked for again."""
        reuse = self._reuse
        if reuse is None:
            return blocks
        worth, seen, looks = 0.0, 0, VICTIMS
        for run in self._believed:
            if run in besides:
                continue
            count = min(blocks - seen, len(run.keys))
            worth += count * reuse.value(run.uses, reuse.now - run.touched)
            seen += count
            looks -= 1
            if seen >= blocks or not looks:
                break
        return worth * blocks / seen if seen else 0.0

    def make_room(self) -> None:
        """Forget what is too much to remember, and doubt what there is no room for."""
        excess = self.size + self.doubted_size - self.room.most
        while excess > 0:
            run = next(iter(self.doubted or self._believed))
            if not run.doubted:
                self._note_evicted(run, min(excess, len(run.keys)))
            excess -= self.cut(run, excess)
        while (excess := self.size - self.room.blocks) > 0:
            run = next(iter(self._believed))
            self._demote(run if len(run.keys) <= excess else self._cut_off(run, excess))

    def cut(self, leaf: Run, blocks: int) -> int:
        """Forget up to so many blocks from its end. How many."""
        count = min(blocks, len(leaf.keys))
        if leaf.doubted:
            self.doubted_size -= count
        else:
            self.size -= count
        if count == len(leaf.keys):
            assert leaf.parent is not None
            del leaf.parent.children[leaf.keys[0]]
            self.absorb(leaf)
        else:
            del leaf.keys[-count:]
        return count

    def doubt(self, stamp: int) -> int:
        """All that was touched last at that time or before. How many blocks."""
        before = self.demoted
        while self._believed and (run := next(iter(self._believed))).stamp <= stamp:
            if run.promised:  # who is at work on it keeps it there, and all before it
                above = run
                while above.parent is not None:
                    self.renew(above)
                    above = above.parent
            else:
                self._demote(run)
        return self.demoted - before

    def believe(self, stamp: int) -> int:
        """What was touched last at that time or after, as far as there is room. How many blocks."""
        before = self.size
        while self.doubted and (run := next(reversed(self.doubted))).stamp >= stamp:
            if self.size + len(run.keys) > self.room.blocks:
                break
            del self.doubted[run]
            run.doubted = False
            self._believed[run] = None
            self._believed.move_to_end(run, last=False)
            self.doubted_size -= len(run.keys)
            self.size += len(run.keys)
        return self.size - before

    def doubted_since(self, stamp: int) -> int:
        """Doubted blocks that were touched last at that time or after."""
        count = 0
        for run in reversed(self.doubted):
            if run.stamp < stamp:
                break
            count += len(run.keys)
        return count

    def _note_evicted(self, run: Run, blocks: int) -> None:
        if self._reuse is not None:
            self._reuse.evicted(run.uses, self.now - run.touched, blocks)

    def _cut_off(self, run: Run, blocks: int) -> Run:
        """The last so many blocks of the oldest believed run as a run of their own."""
        tail = run.split_tail(blocks)
        self._believed[tail] = None
        self._believed.move_to_end(tail, last=False)
        return tail

    def _demote(self, run: Run) -> None:
        """The oldest that is believed becomes the youngest that is not."""
        del self._believed[run]
        run.doubted = True
        self.size -= len(run.keys)
        self.doubted_size += len(run.keys)
        self.demoted += len(run.keys)
        self._note_evicted(run, len(run.keys))
        children = tuple(run.children.values())
        if children and children[0].stamp == run.stamp and run.is_like(children[0]):
            # The rest of what was one run, block by block: one again.
            del self.doubted[children[0]]
            run.swallow(children[0])
        self.doubted[run] = None
