"""A paged prefix cache as vLLM's: full blocks, one LRU over all of them, tails before heads.

Blocks used together are kept together, as runs in a radix tree, so a request costs a few steps
however long it is, and a block costs the 8 bytes of its key.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence

from prefold.prefix_index.index import Placement, PrefixMatch
from prefold.prefix_index.prefix import Prefix


class _Run:
    """Consecutive blocks with one history: touched last by the same request, one way in, and
    branching only after the last of them."""

    __slots__ = ("children", "keys", "owner", "parent")

    def __init__(self, keys: array[int], parent: _Run | None, owner: Placement | None) -> None:
        self.keys = keys
        self.parent = parent
        self.owner = owner
        """Whose promise these blocks are; None once a request that computed them has ended."""
        self.children: dict[int, _Run] = {}
        """By their first key."""


class BlockLru:
    """The LRU order is that of blocks touched by each request from its tail to its head.

    So a block is never older than those after it, the tails of old prompts go first, and the known
    set is closed under prefixes. A request touches at `begin` and, as vLLM frees blocks then,
    again at `finish`. Not modelled: that running requests pin their blocks, and that the answer's
    blocks are cached too (its tokens are not known here).
    """

    def __init__(self, capacity_tokens: int, block_tokens: int) -> None:
        """Raises ValueError unless at least one block fits."""
        if not 1 <= block_tokens <= capacity_tokens:
            raise ValueError(f"no block of {block_tokens} tokens fits {capacity_tokens} tokens")
        self._block = block_tokens
        self._capacity = capacity_tokens // block_tokens
        self.clear()

    def __repr__(self) -> str:
        return (
            f"<BlockLru {self.size_tokens}/{self.capacity_tokens} tokens"
            f" in blocks of {self._block}, {len(self._order)} runs>"
        )

    @property
    def size_tokens(self) -> int:
        return self._size * self._block

    @property
    def capacity_tokens(self) -> int:
        return self._capacity * self._block

    def clear(self) -> None:
        self._root = _Run(array("Q"), None, None)
        self._order: OrderedDict[_Run, None] = OrderedDict()
        """Least recently used first. A run comes after its descendants, so the first is a leaf."""
        self._size = 0
        self._era = object()

    def match(self, prefix: Prefix) -> PrefixMatch:
        """Whole blocks, and at most length - 1 tokens: the last one is always recomputed."""
        keys = self._keys(prefix)
        known = self._find(keys)[1]
        # All of the prompt takes room, also what is not known of it yet.
        blocks = min(max(len(keys), prefix.length // self._block), self._capacity)
        evicted = self._size + blocks - known - self._capacity
        return PrefixMatch(self._reusable(prefix, known), max(evicted, 0) * self._block)

    def begin(self, prefix: Prefix, now: float) -> Placement:
        """Inserted at once. Of a prompt larger than the cache, the head is."""
        placement = Placement(prefix, 0, self._era)
        _, known = self._touch(self._keys(prefix), placement)
        placement.cached_tokens = self._reusable(prefix, known)
        return placement

    def finish(self, placement: Placement, now: float, *, computed: bool = True) -> None:
        """Not computed: the blocks that this `begin` added are dropped, unless a request that
        reused them has computed them since or has added more behind them. What others in flight
        still count on is put back when they finish. What was evicted for them stays evicted.
        """
        if not placement.open or placement.era is not self._era:
            return
        placement.open = False
        keys = self._keys(placement.prefix)
        if computed:
            self._confirm(self._touch(keys, None)[0])
        else:
            self._drop(keys)

    def _keys(self, prefix: Prefix) -> Sequence[int]:
        chain = prefix.chain(self._block)
        return chain if len(chain) <= self._capacity else chain[: self._capacity]

    def _reusable(self, prefix: Prefix, blocks: int) -> int:
        return max(min(blocks, (prefix.length - 1) // self._block), 0) * self._block

    def _find(self, keys: Sequence[int]) -> tuple[list[_Run], int, int]:
        """The runs that hold the longest known prefix, its blocks, and those in the last run."""
        path: list[_Run] = []
        known = inside = 0
        run = self._root
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

    def _touch(self, keys: Sequence[int], owner: Placement | None) -> tuple[list[_Run], int]:
        """Make these blocks the most recent, adding those that are not known: the runs that hold
        them now, and how many blocks were known."""
        path, known, inside = self._find(keys)
        if path and inside < len(path[-1].keys):
            path[-1] = self._split(path[-1], inside)
        if known < len(keys):
            parent = path[-1] if path else self._root
            leaf = _Run(array("Q", keys[known:]), parent, owner)
            parent.children[keys[known]] = leaf
            self._order[leaf] = None
            self._size += len(leaf.keys)
            path.append(leaf)
        for run in reversed(path):
            self._order.move_to_end(run)
        if self._size > self._capacity:
            self._evict(self._size - self._capacity)
        return path, known

    def _split(self, run: _Run, at: int) -> _Run:
        """A new run takes the first `at` blocks; the rest keeps its place in the order."""
        assert run.parent is not None
        head = _Run(run.keys[:at], run.parent, run.owner)
        run.parent.children[head.keys[0]] = head
        del run.keys[:at]
        run.parent = head
        head.children[run.keys[0]] = run
        self._order[head] = None
        return head

    def _evict(self, blocks: int) -> None:
        while blocks > 0:
            run = next(iter(self._order))
            blocks -= self._cut(run, blocks)

    def _cut(self, leaf: _Run, blocks: int) -> int:
        """Forget up to so many blocks from its end. How many."""
        count = min(blocks, len(leaf.keys))
        if count == len(leaf.keys):
            assert leaf.parent is not None
            del leaf.parent.children[leaf.keys[0]]
            del self._order[leaf]
        else:
            del leaf.keys[-count:]
        self._size -= count
        return count

    def _confirm(self, path: list[_Run]) -> None:
        """They were computed, and touched just now: those with one way on become one run again."""
        above = self._root
        for run in path:
            run.owner = None
            if above is not self._root and len(above.children) == 1:
                above.keys.extend(run.keys)
                above.children = run.children
                for child in run.children.values():
                    child.parent = above
                del self._order[run]
            else:
                above = run

    def _drop(self, keys: Sequence[int]) -> None:
        """From the tail of these blocks on, those that only requests which ended had promised."""
        path, _, inside = self._find(keys)
        if path and inside < len(path[-1].keys):
            return
        for run in reversed(path):
            if run.children or run.owner is None or run.owner.open:
                return
            self._cut(run, len(run.keys))


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
