"""A paged prefix cache as vLLM's: full blocks, one LRU over all of them, tails before heads.

Blocks used together are kept together, as runs in a radix tree, so a request costs a few steps
however long it is, and a block costs the 8 bytes of its key.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from prefold.prefix_index.claims import (
    BlockPlacement,
    Part,
    believed_blocks,
    first_lost,
    from_before,
    last_found,
    parts_of,
)
from prefold.prefix_index.emptying import Emptying
from prefold.prefix_index.index import RIGHT, Correction, Placement, PrefixMatch
from prefold.prefix_index.prefix import Prefix
from prefold.prefix_index.recency import Recency
from prefold.prefix_index.reuse import ReuseEstimate
from prefold.prefix_index.room import Room
from prefold.prefix_index.runs import Run, find

SLACK_BLOCKS = 1
"""Engines round: to whole blocks, to all but the last token. So much off is right."""


class BlockLru:
    """The LRU order is that of blocks touched by each request from its tail to its head.

    So a block is never older than those after it, the tails of old prompts go first, and the known
    set is closed under prefixes. A request touches at `begin` and, as vLLM frees blocks then,
    again at `finish`. Not modelled: that running requests pin their blocks, and that the answer's
    blocks are cached too (its tokens are not known here).

    What is believed is the younger part of one order, as much as there is room for. What is older
    is doubted, but remembered, up to `most_tokens`. A report that something was lost says the same
    of all that is older, one that something was found, of all that is younger: `correct` moves the
    border between the two, and the estimate of the room with it.
    """

    def __init__(
        self,
        capacity_tokens: int,
        block_tokens: int,
        *,
        most_tokens: int | None = None,
        reuse: ReuseEstimate | None = None,
    ) -> None:
        """`most_tokens` bounds what reports may raise the capacity to (None: not above it). `reuse`
        learns from this cache, and says what its blocks are worth (None: each as if asked for
        again). Raises ValueError unless at least one block fits."""
        if not 1 <= block_tokens <= capacity_tokens:
            raise ValueError(f"no block of {block_tokens} tokens fits {capacity_tokens} tokens")
        self._block = block_tokens
        self._reuse = reuse
        most = max(most_tokens or 0, capacity_tokens)
        self._room = Room(capacity_tokens // block_tokens, most // block_tokens)
        self.clear()

    def __repr__(self) -> str:
        return (
            f"<BlockLru {self.size_tokens}/{self.capacity_tokens} tokens"
            f" in blocks of {self._block}, {len(self._recency)} runs>"
        )

    @property
    def size_tokens(self) -> int:
        return self._recency.size * self._block

    @property
    def capacity_tokens(self) -> int:
        return self._room.blocks * self._block

    @property
    def doubted_tokens(self) -> int:
        """Remembered besides."""
        return self._recency.doubted_size * self._block

    def clear(self) -> None:
        """What was learned of its size stays."""
        self._root = Run(array("Q"), None, None)
        self._recency = Recency(self._room, self._reuse)
        self._emptying = Emptying()
        self._era = object()

    def match(self, prefix: Prefix) -> PrefixMatch:
        """Whole blocks, and at most length - 1 tokens: the last one is always recomputed."""
        keys = self._keys(prefix)
        path, known, _ = find(self._root, keys)
        if path and path[-1].doubted:
            known = believed_blocks(parts_of(path, known))
        # All of the prompt takes room, also what is not known of it yet.
        blocks = min(max(len(keys), prefix.length // self._block), self._room.blocks)
        evicted = self._recency.size + blocks - known - self._room.blocks
        lost = self._recency.worth(evicted, path) * self._block if evicted > 0 else 0.0
        return PrefixMatch(self._reusable(prefix, known), lost)

    def begin(self, prefix: Prefix, now: float) -> Placement:
        """Inserted at once. Of a prompt larger than the cache, the head is."""
        keys = self._keys(prefix)
        self._pass_time(now)
        path, known, inside = find(self._root, keys)
        parts = parts_of(path, known)
        believed = believed_blocks(parts) if path and path[-1].doubted else known
        placement = BlockPlacement(
            prefix,
            self._reusable(prefix, believed),
            self._era,
            parts=parts,
            size=self._recency.size,
            demoted=self._recency.demoted,
            clock=self._recency.clock,
        )
        self._touch(keys, placement, path, known, inside)
        return placement

    def finish(self, placement: Placement, now: float, *, computed: bool = True) -> None:
        """Not computed: the blocks that this `begin` added are dropped, unless a request that
        reused them has computed them since or has added more behind them. What others in flight
        still count on is put back when they finish. What was evicted for them stays evicted.
        """
        if not placement.open or placement.era is not self._era:
            return
        placement.open = False
        self._pass_time(now)
        keys = self._keys(placement.prefix)
        if computed:
            self._join(self._touch(keys, None, *find(self._root, keys)))
        else:
            self._drop(keys)

    def correct(
        self, placement: Placement, cached_tokens: int, now: float, *, generated_tokens: int = 0
    ) -> Correction:
        """Its own blocks are there now, whatever was reported. What was lost or found of them tells
        of all that was used before or after them, and of the room."""
        if placement.era is not self._era or not isinstance(placement, BlockPlacement):
            return RIGHT
        found, expected = cached_tokens // self._block, placement.cached_tokens // self._block
        right = abs(found - expected) <= SLACK_BLOCKS
        if right and not self._emptying.suspected:
            return RIGHT
        parts, placement.parts = placement.parts, []
        emptied = self._emptying.suspected and self._is_emptied(parts, found)
        if not right and found > expected:
            return self._note_found(placement, parts, found)
        made = RIGHT if right else self._note_lost(placement, parts, found)
        if not emptied:
            return made
        since, room = self._emptying.end()
        doubted = self._recency.doubt(since) * self._block
        # Of the size this told nothing, unless it goes on like this: then it is small indeed.
        self._room.blocks = min(room, self._room.blocks * 2)
        return Correction(lost_tokens=made.lost_tokens + doubted, emptied=True)

    def _is_emptied(self, parts: list[Part], found: int) -> bool:
        start, part = from_before(parts, self._emptying.since)
        if part is None or part.promised:
            return False
        return self._emptying.note(part.stamp, found=start < found)

    def _note_lost(self, placement: BlockPlacement, parts: list[Part], found: int) -> Correction:
        first = first_lost(parts, found)
        if first is None or first.promised:
            return RIGHT  # another one was to compute it, and had not yet
        believed, oldest = believed_blocks(parts), min(self._recency.oldest, parts[-1].stamp)
        doubted = self._recency.doubt(first.stamp)
        used_since = placement.size - (believed - found) - doubted
        self._emptying.suspect(
            used_since=used_since, room=self._room.blocks, clock=placement.clock, oldest=oldest
        )
        self._room.lost(used_since)
        self._recency.make_room()
        return Correction(lost_tokens=(believed - found + doubted) * self._block)

    def _note_found(self, placement: BlockPlacement, parts: list[Part], found: int) -> Correction:
        last = last_found(parts, found)
        if last is None:
            return RIGHT  # nothing was known of these blocks: another's traffic, or an answer's
        found = min(found, last.end)
        believed, recency = believed_blocks(parts), self._recency
        demoted = recency.demoted - placement.demoted
        younger = recency.doubted_since(last.stamp) - demoted
        self._room.found(placement.size + found - believed + younger)
        promoted = recency.believe(last.stamp)
        return Correction(found_tokens=(found - believed + promoted) * self._block)

    def _pass_time(self, now: float) -> None:
        self._recency.now = now
        if self._reuse is not None:
            self._reuse.now = max(self._reuse.now, now)

    def _keys(self, prefix: Prefix) -> Sequence[int]:
        chain = prefix.chain(self._block)
        return chain if len(chain) <= self._room.most else chain[: self._room.most]

    def _reusable(self, prefix: Prefix, blocks: int) -> int:
        return max(min(blocks, (prefix.length - 1) // self._block), 0) * self._block

    def _touch(
        self, keys: Sequence[int], owner: Placement | None, path: list[Run], known: int, inside: int
    ) -> list[Run]:
        """Make these blocks the most recent, adding those that are not known, to whose owner they
        are promised; without an owner all are known to be computed. The runs that hold them."""
        recency = self._recency
        if path and inside < len(path[-1].keys):
            path[-1] = path[-1].split(inside)
            recency.add_split(path[-1])
        if known < len(keys):
            parent = path[-1] if path else self._root
            leaf = Run(array("Q", keys[known:]), parent, owner)
            parent.children[keys[known]] = leaf
            recency.add(leaf)
            path.append(leaf)
        if owner is not None:
            for run in path:
                recency.ask_for(run)
        for run in reversed(path):
            recency.renew(run)
        if owner is None:
            for run in path:
                run.owner = None
        if recency.size > self._room.blocks or recency.doubted:
            recency.make_room()
        return path

    def _join(self, path: list[Run]) -> None:
        """They were touched just now: those with one way on become one run again."""
        above = self._root
        for run in path:
            if above is self._root or not above.is_like(run):
                above = run
                continue
            self._recency.absorb(run)
            above.swallow(run)

    def _drop(self, keys: Sequence[int]) -> None:
        """From the tail of these blocks on, those that only requests which ended had promised."""
        path, _, inside = find(self._root, keys)
        if path and inside < len(path[-1].keys):
            return
        for run in reversed(path):
            if run.children or run.owner is None or run.owner.open:
                return
            self._recency.cut(run, len(run.keys))
