"""How fast a backend computes prompts, learned from the times to first tokens that were seen there.

Pure. Knows nothing of backends; who observes sees to it that nothing was queued ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

Seen = tuple[int, float]
"""Uncached tokens of a prompt, and the seconds to its first token."""
SPREAD = 1.5
"""How much longer one of two prompts must be for their times to tell a slope from noise."""


class Line(NamedTuple):
    """`low` and `high`: between these lies half of what single pairs of prompts, or prompts, say of
    the rate. Tokens per second, and seconds."""

    rate: float
    overhead: float
    low: float
    high: float


class PrefillRate:
    """A line through what was seen last: seconds = overhead + uncached tokens / rate.

    The slope is the median of those between the shorter half of the prompts and the longer (Theil's
    incomplete method, 1950), so that up to a quarter of them may be off by any factor. An overhead
    (network, scheduling, the first step of decode) is told apart from the rate, which short prompts
    would otherwise make look several times less than it is.
    """

    WINDOW = 32
    """Prompts; after a change of speed about three quarters as many decide."""
    MIN_LINE = 8
    """Prompts that make a line."""
    EVERY = 4
    """Prompts for each of which the line is drawn again, once there are MIN_LINE."""
    MIN_TOKENS = 64
    """A shorter prompt's time says nothing of prefill."""

    def __init__(self) -> None:
        self._seen: deque[Seen] = deque(maxlen=self.WINDOW)
        self._count = 0
        self._line: Line | None = None

    def observe(self, uncached_tokens: int, seconds: float) -> None:
        """About 0.3 us, and 10 us more for each fourth prompt."""
        if uncached_tokens < self.MIN_TOKENS or seconds <= 0:
            return
        self._seen.append((uncached_tokens, seconds))
        self._count += 1
        if self._count < self.MIN_LINE or self._count % self.EVERY == 0:
            self._line = line_of(sorted(self._seen, key=_tokens), self.MIN_LINE)

    @property
    def tokens_per_s(self) -> float | None:
        """None until something was observed."""
        return None if self._line is None else self._line.rate

    def may_be(self, tokens_per_s: float) -> bool:
        """Whether what was seen is no evidence against it: a few times, or times that scatter,
        make one of two equal backends look faster."""
        line = self._line
        if line is None or self._count < self.MIN_LINE:
            return True
        return line.low <= tokens_per_s <= line.high

    @property
    def overhead_s(self) -> float | None:
        """Of a time to first token, what does not grow with the prompt; None as above."""
        return None if self._line is None else self._line.overhead


def line_of(seen: list[Seen], at_least: int) -> Line:
    """Of one prompt or more in order of length.

    All of the time is prefill's where they are fewer than `at_least` or about equal in length,
    where the slopes do not agree (three quarters must be positive), and where the line would begin
    below zero.
    """
    plain = _through_zero(seen)
    half = len(seen) // 2
    pairs = list(zip(seen[:half], seen[-half:], strict=True)) if len(seen) >= at_least else []
    slopes = sorted(
        (long[1] - short[1]) / (long[0] - short[0])
        for short, long in pairs
        if long[0] >= SPREAD * short[0]
    )
    if 2 * len(slopes) < at_least or slopes[len(slopes) // 4] <= 0:
        return plain
    slope = median(slopes)
    overhead = median([seconds - slope * tokens for tokens, seconds in seen])
    if overhead <= 0:
        return plain
    steep, flat = _quartiles(slopes)[::-1]
    return Line(1 / slope, overhead, 1 / steep, 1 / flat)


def _through_zero(seen: list[Seen]) -> Line:
    """The median over the longer half, where an overhead weighs least."""
    rates = sorted(tokens / seconds for tokens, seconds in seen[len(seen) // 2 :])
    return Line(median(rates), 0.0, *_quartiles(rates))


def _quartiles(ordered: Sequence[float]) -> tuple[float, float]:
    quarter = len(ordered) // 4
    return ordered[quarter], ordered[-1 - quarter]


def _tokens(seen: Seen) -> int:
    return seen[0]
