"""Blocks that requests in flight are to compute, until the engine itself says that it holds them.

Pure bookkeeping: no clock, and no say in what else is held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from prefold.prefix_index.index import Placement

GRACE_S = 2.0
"""A request that ended is believed to have left its blocks for this long: word of them may be on
its way still."""


class Promises:
    """Mutable. `count` is by key, how many requests are to compute that block."""

    def __init__(self) -> None:
        self.count: dict[int, int] = {}
        self._open: dict[Placement, Sequence[int]] = {}
        self._fading: deque[tuple[float, Sequence[int]]] = deque()

    def __len__(self) -> int:
        """Blocks."""
        return len(self.count)

    def begin(self, placement: Placement, keys: Sequence[int]) -> None:
        self._open[placement] = keys
        for key in keys:
            self.count[key] = self.count.get(key, 0) + 1

    def finish(self, placement: Placement, now: float, *, computed: bool) -> None:
        """Not computed: its promise ends here, otherwise GRACE_S later."""
        keys = self._open.pop(placement)
        if computed:
            self._fading.append((now + GRACE_S, keys))
        else:
            self._withdraw(keys)

    def expire(self, now: float) -> None:
        """To be called before anything else; `now` never goes back."""
        while self._fading and self._fading[0][0] <= now:
            self._withdraw(self._fading.popleft()[1])

    def spent(self, key: int) -> None:
        """The block was there and is gone: nobody's promise holds any more."""
        self.count.pop(key, None)

    def _withdraw(self, keys: Sequence[int]) -> None:
        for key in keys:
            left = self.count.get(key, 0) - 1
            if left > 0:
                self.count[key] = left
            else:
                self.count.pop(key, None)
