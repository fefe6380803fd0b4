"""What a router is to the simulation, and what any of them may know: the loads it counts itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from prefold.proxy.simulate.engine import EngineShape, Job
from prefold.proxy.simulate.trace import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Equal engines, numbered from 0."""

    backends: int
    engine: EngineShape


class Router(Protocol):
    """Told of each request three times. No router sees the engines' caches or queues."""

    def route(self, request: Request, now: float) -> int:
        """The number of the backend that gets it; its load counts from here on."""

    def first_token(self, job: Job, now: float) -> None:
        """Its prefill is done."""

    def finished(self, job: Job, now: float) -> None:
        """Its last token is out."""


RouterFactory = Callable[[Fleet, int], Router]
"""From the fleet and a seed, to a router that knows nothing yet."""
