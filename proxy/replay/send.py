"""One request as a client sends it, and what came back: a timeline.

The client is aiohttp's: what is measured here is a server, by other code than the server's.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from prefold.measurement.definitions.timeline import Timeline, Usage, chunks_of
from prefold.proxy.chunks import ChunkMeter
from prefold.proxy.replay.prompts import Planned
from prefold.proxy.sse import EventSplitter

DECISION_HEADER = "X-Prefold-Decision"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`url` without /v1; `headers` go with every request."""

    name: str
    url: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One request of one arm. `number` is its place in the plan, the same in every arm; `late_s` is
    how long after it was due it was sent."""

    number: int
    target: str
    timeline: Timeline
    status: int
    late_s: float
    decision: str
    """What prefold says of its choice; "" from another server."""


async def send(
    session: aiohttp.ClientSession, target: Target, planned: Planned, number: int, due: float
) -> Sent:
    """Streamed, with usage asked for. A failure is in the timeline's `error`, as a name of its
    class or of the status, never a text."""
    body: dict[str, Any] = planned.body | {
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    meter, splitter = ChunkMeter(), EventSplitter()
    status, decision, error = 0, "", None
    sent = time.perf_counter()
    try:
        async with session.post(
            target.url + planned.path, json=body, headers=target.headers
        ) as response:
            status = response.status
            decision = response.headers.get(DECISION_HEADER, "")
            async for piece in response.content.iter_any():
                now = time.perf_counter()
                for event in splitter.feed(piece):
                    meter.observe(event, now)
        error = _fault(status, meter)
    except (aiohttp.ClientError, TimeoutError) as fault:
        error = type(fault).__name__
    timeline = Timeline(
        sent=sent,
        chunks=chunks_of(meter.token_times, meter.token_kinds, meter.other_events),
        usage=_usage(meter),
        end=time.perf_counter(),
        error=error,
    )
    return Sent(
        number=number,
        target=target.name,
        timeline=timeline,
        status=status,
        late_s=sent - due,
        decision=decision,
    )


def _fault(status: int, meter: ChunkMeter) -> str | None:
    if status != 200:
        return f"status {status}"
    if meter.error_status is not None:
        return "an error event"
    return None if meter.done or meter.complete() else "the stream ended early"


def _usage(meter: ChunkMeter) -> Usage | None:
    usage, timings = meter.usage, meter.timings
    if usage is None:
        return None
    details = usage.prompt_tokens_details
    cached = details.cached_tokens if details is not None else None
    if cached is None and timings is not None:
        cached = timings.cache_n  # llama.cpp's own word for it
    return Usage(usage.prompt_tokens, usage.completion_tokens, cached)
