"""How many blocks an engine really keeps, learned from what it kept and what it lost.

In an LRU a block goes when as many others were used after it as there is room for. So a block that
was lost shows that there is no more room than were used after it; one that was found, that there is
at least as much. Pure arithmetic: knows nothing of keys.
"""

from __future__ import annotations

STEP = 0.25
"""Of the way down to what two losses in a row show: eight more leave a tenth of the error."""


class Room:
    """`blocks` is between 1 and `most`. Mutable.

    What was found is proof, and believed at once. What was lost may have gone for another reason (a
    flush, a request that may not read the cache), so one report alone changes nothing, and two
    that agree change a part.
    """

    __slots__ = ("_before", "blocks", "most")

    def __init__(self, blocks: int, most: int) -> None:
        self.blocks = blocks
        self.most = most
        self._before = most
        """As of the loss before."""

    def lost(self, used_since: int) -> None:
        """A block was not there, though only so many were used after it."""
        shown, self._before = max(used_since, self._before, 1), used_since
        if shown < self.blocks:
            # At least one block, or the estimate would stop short of what is shown.
            self.blocks -= max(round((self.blocks - shown) * STEP), 1)

    def found(self, used_since: int) -> None:
        """A block was there, though so many, itself among them, are as young."""
        self.blocks = min(max(used_since, self.blocks), self.most)
