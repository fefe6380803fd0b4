"""Which part of a run is counted, and whether it was steady: as Perf Analyzer has it, by windows.

A run that warms up or runs dry is not what it will be like for long.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from prefold.measurement.definitions.timeline import Timeline

WINDOWS = 3
WITHIN = 0.10
"""Of three windows in a row, the largest value over the smallest, less one (Perf Analyzer's
--stability-percentage is 10)."""


class Stability(msgspec.Struct, frozen=True, kw_only=True):
    """`stable` None: fewer than three windows with requests."""

    window_s: float
    windows: int
    requests_spread: float | None
    """Of the last three windows: most requests ended over fewest, less one."""
    latency_spread: float | None
    """The same of their mean time from sent to ended."""
    stable: bool | None


def cut(timelines: Sequence[Timeline], *, warmup_s: float, cooldown_s: float) -> list[Timeline]:
    """Without those that were sent in the first seconds or had not ended before the last ones of
    the run, which goes from the first send to the last end."""
    if not timelines:
        return []
    start = min(timeline.sent for timeline in timelines) + warmup_s
    end = max(timeline.ended for timeline in timelines) - cooldown_s
    return [timeline for timeline in timelines if timeline.sent >= start and timeline.ended <= end]


def stability(timelines: Sequence[Timeline], window_s: float) -> Stability:
    """By windows of so many seconds from the first send on; what is left at the end is no window.
    A request belongs to the window it ended in."""
    good = [timeline for timeline in timelines if timeline.error is None]
    if not good:
        return Stability(
            window_s=window_s, windows=0, requests_spread=None, latency_spread=None, stable=None
        )
    start = min(timeline.sent for timeline in good)
    number = int((max(timeline.ended for timeline in good) - start) / window_s)
    ended: list[list[float]] = [[] for _ in range(number)]
    for timeline in good:
        window = int((timeline.ended - start) / window_s)
        if window < number:
            ended[window].append(timeline.ended - timeline.sent)
    last = ended[-WINDOWS:]
    if len(last) < WINDOWS or not all(last):
        return Stability(
            window_s=window_s, windows=number, requests_spread=None, latency_spread=None,
            stable=None,
        )  # fmt: skip
    requests = _spread([float(len(window)) for window in last])
    latency = _spread([sum(window) / len(window) for window in last])
    return Stability(
        window_s=window_s,
        windows=number,
        requests_spread=requests,
        latency_spread=latency,
        stable=max(requests, latency) <= WITHIN,
    )


def _spread(values: Sequence[float]) -> float:
    return max(values) / min(values) - 1 if min(values) > 0 else float("inf")
