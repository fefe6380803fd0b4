"""What the load generator is told, and what it tells."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    url: str
    body_bytes: int
    shared: bool
    chunks: int
    """Events with text that each answer must have; 0: whole answers."""
    requests: int
    seed: str
    connections: int = 8
    """Of the closed loop."""
    rate: float = 0.0
    """Requests per second, sent whatever is still open: evenly, each up to half a gap late, so that
    they keep no step with the chunks of others. 0: a closed loop."""
    stagger_ms: float = 0.0
    """Over which the closed loop's connections start, so that their streams are not in step."""
    needs: str = ""
    """Must be in every answer's head."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    requests: int
    wall_s: float
    first_ms: list[float]
    """Of each request, from its sending to its first event with text (whole: to the answer)."""
    cpu_us: float
    """Of the load process itself, from "ready" to "done"."""
    connections: int
    wrong: str = ""
    """Of the first answer that is not right."""
