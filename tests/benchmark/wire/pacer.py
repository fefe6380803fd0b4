"""Timers of the kernel's precision. An event loop's own are rounded to milliseconds, which would
send the chunks of several streams in one bundle, and blur every time to first token. Linux only."""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import os
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count

CLOCK_MONOTONIC, ABSOLUTE = 1, 1  # linux/time.h, linux/timerfd.h
NS = 1_000_000_000


class _ITimerSpec(ctypes.Structure):
    """struct itimerspec: an interval, which stays 0, and the time of the one expiry."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("at_s", ctypes.c_long),
        ("at_ns", ctypes.c_long),
    )


class Planned:
    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None] | None) -> None:
        self.call = call

    def cancel(self) -> None:
        self.call = None


class Pacer:
    """Calls on the running event loop, each at a time of `time.monotonic_ns`."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.timerfd_create(CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._heap: list[tuple[int, int, Planned]] = []
        self._number = count()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._due)

    def call_at(self, when_ns: int, call: Callable[[], None]) -> Planned:
        planned = Planned(call)
        heapq.heappush(self._heap, (when_ns, next(self._number), planned))
        if self._heap[0][2] is planned:
            self._arm(when_ns)
        return planned

    def close(self) -> None:
        """What is still planned is not called."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _due(self) -> None:
        with suppress(BlockingIOError):  # set anew since the loop saw it expire
            os.read(self._fd, 8)
        now = time.monotonic_ns()
        while self._heap and self._heap[0][0] <= now:
            planned = heapq.heappop(self._heap)[2]
            if planned.call is not None:
                planned.call()
        if self._heap:
            self._arm(self._heap[0][0])

    def _arm(self, when_ns: int) -> None:
        """A time that has passed expires at once."""
        at = _ITimerSpec(0, 0, when_ns // NS, when_ns % NS)
        if self._libc.timerfd_settime(self._fd, ABSOLUTE, ctypes.byref(at), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")
