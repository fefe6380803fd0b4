"""What the blocks that a cache would evict are worth: how likely they are to be asked for again.

Learned from what happens to blocks of the fleet: they are used again after some time, or evicted
before that could be seen. Knows nothing of prompts; blocks are counts.
"""

from __future__ import annotations

USES = 3
"""Blocks used once, twice, and more often are told apart: of those used once few come back."""
AGES = 24
"""Age classes, each twice as long as the one before."""
YOUNGEST_S = 0.25
"""Up to which age the first class goes."""
REFIT = 256
"""Observations after which the estimates are made anew, and what is older counts less."""
KEPT = 0.98


class ReuseEstimate:
    """Mutable; a few hundred numbers, whatever passes through. One may serve all caches of a fleet.

    By the product-limit estimate (Kaplan and Meier, 1958), for each class of uses: the chance to be
    used within an age class is the blocks used again at that age over all whose age was seen to
    reach it; evicted blocks leave without having been used.
    """

    def __init__(self) -> None:
        self.now = 0.0
        """The latest moment that a cache was told of: ages are up to then."""
        self._reused = [[0.0] * AGES for _ in range(USES)]
        self._evicted = [[0.0] * AGES for _ in range(USES)]
        self._value = [[1.0] * AGES for _ in range(USES)]
        self._observed = 0

    def reused(self, uses: int, age_s: float, blocks: int) -> None:
        """Blocks were used again that had been used so often, the last time so long ago."""
        self._reused[_uses(uses)][_age(age_s)] += blocks
        self._note()

    def evicted(self, uses: int, age_s: float, blocks: int) -> None:
        self._evicted[_uses(uses)][_age(age_s)] += blocks
        self._note()

    def value(self, uses: int, age_s: float) -> float:
        """The chance that such a block would be used again, were it kept: 0 to 1. 1 until something
        was learned: what is held counts as needed."""
        return self._value[_uses(uses)][_age(age_s)]

    def _note(self) -> None:
        self._observed += 1
        if self._observed % REFIT == 0:
            for reused, evicted, value in zip(
                self._reused, self._evicted, self._value, strict=True
            ):
                _fit(reused, evicted, value)
                reused[:] = [KEPT * blocks for blocks in reused]
                evicted[:] = [KEPT * blocks for blocks in evicted]


def _fit(reused: list[float], evicted: list[float], value: list[float]) -> None:
    at_risk, never = 0.0, 1.0
    for age in range(AGES - 1, -1, -1):
        at_risk += reused[age] + evicted[age]
        if at_risk:
            never *= 1 - reused[age] / at_risk
        value[age] = 1 - never if at_risk else 1.0


def _uses(uses: int) -> int:
    return min(max(uses, 1), USES) - 1


def _age(age_s: float) -> int:
    longest = YOUNGEST_S * 2**AGES
    return min(int(min(max(age_s, 0.0), longest) / YOUNGEST_S).bit_length(), AGES - 1)
