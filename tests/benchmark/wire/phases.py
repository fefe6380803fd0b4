"""What is measured of a case, one after the other: a scene for the stub, a job for the load."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from tests.benchmark.wire.job import Job
from tests.benchmark.wire.plan import SHARED, Case, Plan
from tests.benchmark.wire.scene import Scene


class Phase(StrEnum):
    WHOLE = "whole"
    BURST_SHORT = "burst, short"
    BURST_LONG = "burst, long"
    PACED_SHORT = "paced, short"
    PACED_LONG = "paced, long"
    TTFT_STREAM = "TTFT, stream"
    TTFT_WHOLE = "TTFT, whole"


def phases(plan: Plan, case: Case, tokens: tuple[int, int]) -> dict[Phase, tuple[Scene, Job]]:
    """What the stub answers, and what the load asks; `url`, `needs` and `seed` are still open."""
    whole = Scene(chunks=0, prompt_tokens=tokens[0], cached_tokens=tokens[1])
    ask = Job(
        url="",
        body_bytes=case.body_bytes,
        shared=case.prompt == SHARED,
        chunks=0,
        requests=plan.whole_requests,
        seed="",
    )
    short, long = plan.chunks
    found = {Phase.WHOLE: (whole, ask)}
    for phase, chunks in ((Phase.BURST_SHORT, short), (Phase.BURST_LONG, long)):
        job = replace(ask, chunks=chunks, requests=plan.burst_requests)
        found[phase] = (replace(whole, chunks=chunks), job)
    for phase, chunks in ((Phase.PACED_SHORT, short), (Phase.PACED_LONG, long)):
        job = replace(
            ask,
            chunks=chunks,
            requests=plan.paced_streams,
            connections=plan.paced_streams,
            stagger_ms=plan.pace_ms,
        )
        found[phase] = (replace(whole, chunks=chunks, pace_ms=plan.pace_ms), job)
    slow = replace(
        whole, chunks=plan.ttft_chunks, pace_ms=plan.ttft_pace_ms, ttft_ms=plan.stub_ttft_ms
    )
    open_loop = replace(ask, rate=plan.rate, requests=plan.ttft_whole_requests)
    streams = replace(open_loop, chunks=plan.ttft_chunks, requests=plan.ttft_stream_requests(case))
    found[Phase.TTFT_STREAM] = (slow, streams)
    found[Phase.TTFT_WHOLE] = (whole, open_loop)
    return found
