"""Arms by time: which arm of an experiment has the fleet now. For what shares caches and queues,
routing policies above all, so that no two of them can be compared side by side.

Computed from the wall time and the deployment's secret alone, so workers, replicas and restarts
agree without talking. Reads no settings and knows nothing of requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from prefold.proxy.arms import Arm


class Slice(NamedTuple):
    """Moments are seconds since 1970. `settled`: where its wash-out ends; what comes before is
    served under the arm, and counts for none. `round_start`: each arm has one slice in a round."""

    arm: Arm
    start: float
    settled: float
    end: float
    round_start: float


class Slices:
    """Mutable: `become` replaces the arms while requests go on; the latest slice is remembered."""

    def __init__(
        self,
        secret: bytes,
        arms: Sequence[Arm],
        *,
        slice_s: float,
        washout_s: float,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`slice_s` is greater than `washout_s`; `wall` tells seconds since 1970."""
        self._key = blake2b(secret, digest_size=32, person=b"prefold.slices").digest()
        self._slice_s = slice_s
        self._washout_s = washout_s
        self._wall = wall
        self.become(arms)

    def become(self, arms: Sequence[Arm]) -> None:
        """One at least."""
        self._arms = arms
        self._latest = self._made(0)

    def now(self) -> tuple[Slice, bool]:
        """And whether its wash-out is over."""
        now = self._wall()
        found = self.at(now)
        return found, now >= found.settled

    def at(self, moment: float) -> Slice:
        """The one that holds it."""
        found = self._latest
        if not found.start <= moment < found.end:
            found = self._latest = self._made(int(moment // self._slice_s))
        return found

    def _made(self, number: int) -> Slice:
        """Rounds of as many slices as there are arms hold each arm once, in an order by lot: what
        changes in the course of a day is then in every arm."""
        size = len(self._arms)
        drawn, place = divmod(number, size)
        start = number * self._slice_s
        return Slice(
            arm=sorted(self._arms, key=lambda arm: self._lot(drawn, arm.name))[place],
            start=start,
            settled=start + self._washout_s,
            end=start + self._slice_s,
            round_start=drawn * size * self._slice_s,
        )

    def _lot(self, drawn: int, name: str) -> bytes:
        field = drawn.to_bytes(8, "little", signed=True) + name.encode("utf-8")
        return blake2b(field, key=self._key, digest_size=16).digest()
