"""Calls timed again and again, on the clock and in seconds of the CPU, and what is said of them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import TypeVar

MOST_CALLS = 200
Times = tuple[float, float]  # seconds on the clock, seconds of the CPU
T = TypeVar("T")


def repeated(call: Callable[[], T], seconds: float) -> tuple[T, list[Times]]:
    """What `call` gives, and the times of all its calls: until `seconds` are over, one at least."""
    times: list[Times] = []
    started = time.perf_counter()
    while True:
        begun, spent = time.perf_counter(), time.process_time()
        result = call()
        ended = time.perf_counter()
        times.append((ended - begun, time.process_time() - spent))
        if ended - started >= seconds or len(times) == MOST_CALLS:
            return result, times


def figures(tokens: int, times: list[Times]) -> dict[str, float]:
    """Of calls with `tokens` tokens each: rates of the median call, nearest-rank percentiles."""
    clock, cpu = sorted(one for one, _ in times), [one for _, one in times]
    return {
        "tokens_per_s": round(tokens / statistics.median(clock), 1),
        "tokens_per_cpu_s": round(tokens / statistics.median(cpu), 1),
        "p50_s": round(clock[_rank(0.5, len(clock))], 4),
        "p99_s": round(clock[_rank(0.99, len(clock))], 4),
        "calls": len(times),
    }


def _rank(share: float, count: int) -> int:
    return max(0, math.ceil(share * count) - 1)
