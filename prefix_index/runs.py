"""A radix tree of block keys, in runs of consecutive blocks that were used together.

Only the shape: which runs are believed, and which go first, is the cache model's business.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from prefold.prefix_index.index import Placement
from prefold.prefix_index.reuse import USES


class Run:
    """Consecutive blocks with one history: touched last by the same request, one way in, and
    branching only after the last of them."""

    __slots__ = ("children", "doubted", "keys", "owner", "parent", "stamp", "touched", "uses")

    def __init__(
        self,
        keys: array[int],
        parent: Run | None,
        owner: Placement | None,
        stamp: int = 0,
        *,
        doubted: bool = False,
    ) -> None:
        self.keys = keys
        self.parent = parent
        self.owner = owner
        """Whose promise these blocks are; None once a request that computed them has ended."""
        self.stamp = stamp
        """When it was touched last: greater than that of all runs behind it."""
        self.doubted = doubted
        """Remembered, but not believed to be in the engine's cache any more."""
        self.touched = 0.0
        """The time of that."""
        self.uses = 0
        """Requests that asked for it."""
        self.children: dict[int, Run] = {}
        """By their first key."""

    @property
    def promised(self) -> bool:
        """By a request that is still in flight."""
        return self.owner is not None and self.owner.open

    def split(self, at: int) -> Run:
        """A new run takes the first `at` blocks, as the parent of this one."""
        assert self.parent is not None
        head = self._part(self.keys[:at], self.parent)
        self.parent.children[head.keys[0]] = head
        del self.keys[:at]
        self.parent = head
        head.children[self.keys[0]] = self
        return head

    def split_tail(self, blocks: int) -> Run:
        """A new run takes the last so many blocks, as the only child of this one."""
        tail = self._part(self.keys[-blocks:], self)
        del self.keys[-blocks:]
        tail.children = self.children
        for child in tail.children.values():
            child.parent = tail
        self.children = {tail.keys[0]: tail}
        return tail

    def is_like(self, child: Run) -> bool:
        """Of one history with it, so that the two need not be told apart any more."""
        if len(self.children) > 1 or self.doubted != child.doubted:
            return False
        return self.uses == child.uses or min(self.uses, child.uses) >= USES

    def _part(self, keys: array[int], parent: Run) -> Run:
        part = Run(keys, parent, self.owner, self.stamp, doubted=self.doubted)
        part.touched, part.uses = self.touched, self.uses
        return part

    def swallow(self, child: Run) -> None:
        """Its only child becomes a part of it."""
        self.keys.extend(child.keys)
        self.children = child.children
        for grandchild in self.children.values():
            grandchild.parent = self


def find(root: Run, keys: Sequence[int]) -> tuple[list[Run], int, int]:
    """The runs that hold the longest known prefix, its blocks, and those in the last run."""
    path: list[Run] = []
    known = inside = 0
    run = root
    while known < len(keys):
        child = run.children.get(keys[known])
        if child is None:
            break
        run = child
        inside = common_blocks(run.keys, keys, known)
        path.append(run)
        known += inside
        if inside < len(run.keys):
            break
    return path, known, inside


def common_blocks(run: Sequence[int], keys: Sequence[int], start: int) -> int:
    """How many blocks of `run` go on like `keys` from `start`; the first is known to be equal.

    Keys are chained: where two are equal, so are all before them. Hence bisection.
    """
    low, high = 1, min(len(run), len(keys) - start)
    if run[high - 1] == keys[start + high - 1]:
        return high
    while low < high:
        middle = (low + high) // 2
        if run[middle] == keys[start + middle]:
            low = middle + 1
        else:
            high = middle
    return low
