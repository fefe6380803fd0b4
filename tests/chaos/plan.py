"""What goes wrong when: a pure function of a seed, so that a run can be had again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    KILL = "kill"  # SIGKILL, and a start on the same port at its end
    STOP = "stop"  # SIGSTOP, and SIGCONT at its end
    DROP = "drop"  # the network swallows everything
    RESET = "reset"  # the network resets every connection, new ones too
    DELAY = "delay"  # the network holds every read back


OF_NETWORK = frozenset((Fault.DROP, Fault.RESET, Fault.DELAY))


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Seconds from the start of the run."""

    begins: float
    ends: float
    backend: int
    fault: Fault


def plan(
    seed: int, seconds: float, relayed: Sequence[bool], *, every: float = 1.0, longest: float = 5.0
) -> list[Event]:
    """Faults about `every` so many seconds until `longest` before the end, in order of their
    beginning. `relayed` says of each backend whether there is a network to break before it. No
    backend has two faults at once, and one backend is always left without any."""
    rng = random.Random(seed)
    events: list[Event] = []
    now = rng.uniform(0, every)
    while now < seconds - 1.0:
        ends = min(now + rng.uniform(0.3, longest), seconds)
        busy = {event.backend for event in events if event.ends + 0.5 > now}
        free = [number for number in range(len(relayed)) if number not in busy]
        if len(free) > 1:
            backend = rng.choice(free)
            faults = [fault for fault in Fault if relayed[backend] or fault not in OF_NETWORK]
            events.append(Event(begins=now, ends=ends, backend=backend, fault=rng.choice(faults)))
        now += rng.expovariate(1 / every)
    return events
