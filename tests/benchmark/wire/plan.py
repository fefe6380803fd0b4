"""What is measured, how often, and with which figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

SHARED, UNIQUE = "shared", "unique"


@dataclass(frozen=True, slots=True)
class Case:
    body_kib: int
    prompt: str
    """shared: one long system prompt and a new question each; unique: all new."""

    @property
    def name(self) -> str:
        return f"{self.body_kib}-{self.prompt}"

    @property
    def body_bytes(self) -> int:
        return self.body_kib * 1024


CASES = tuple(Case(size, prompt) for size in (1, 16, 128) for prompt in (SHARED, UNIQUE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Counts are for each peer, case and round."""

    rounds: int
    cases: tuple[Case, ...] = CASES
    warm_up: int = 16
    whole_requests: int
    """Closed loop of 8 connections, answers not streamed."""
    burst_requests: int
    """Closed loop of 8 connections, all chunks of an answer as fast as the stub can."""
    chunks: tuple[int, int] = (64, 256)
    """Of short and long streams; the cost of a chunk comes from their difference."""
    paced_streams: int = 32
    """At once, started over one pace."""
    pace_ms: float = 10.0
    ttft_requests_128_kib: int
    ttft_requests_smaller: int
    """Streams of the open loop, by the size of the body."""
    ttft_whole_requests: int
    rate: float = 20.0
    """Of the open loops, requests per second."""
    stub_ttft_ms: float = 120.0
    """Of the stub, in the open loop of streams; whole answers are given at once."""
    ttft_chunks: int = 16
    ttft_pace_ms: float = 15.0

    def ttft_stream_requests(self, case: Case) -> int:
        large = case.body_kib >= 128
        return self.ttft_requests_128_kib if large else self.ttft_requests_smaller


def full(rounds: int) -> Plan:
    """About 45 minutes with all peers, most of it whatever the number of rounds. A p99 comes from
    2,000 streams at 128 KiB, from 500 below, and from 200 whole answers."""
    return Plan(
        rounds=rounds,
        whole_requests=600,
        burst_requests=160,
        ttft_requests_128_kib=-(-2000 // rounds),
        ttft_requests_smaller=-(-500 // rounds),
        ttft_whole_requests=-(-200 // rounds),
    )


def quick() -> Plan:
    """Under five minutes with all peers: ratios to read, no quantile to quote."""
    return Plan(
        rounds=1,
        warm_up=8,
        whole_requests=120,
        burst_requests=24,
        chunks=(64, 192),
        ttft_requests_128_kib=40,
        ttft_requests_smaller=30,
        ttft_whole_requests=15,
    )


def tiny() -> Plan:
    """That all of it works; a few seconds, and no figure means anything."""
    return Plan(
        rounds=1,
        cases=CASES[:2],
        warm_up=4,
        whole_requests=24,
        burst_requests=8,
        chunks=(4, 12),
        paced_streams=4,
        pace_ms=2.0,
        ttft_requests_128_kib=12,
        ttft_requests_smaller=12,
        ttft_whole_requests=12,
        rate=100.0,
        stub_ttft_ms=5.0,
        ttft_chunks=3,
        ttft_pace_ms=2.0,
    )


def plan_of(size: str, *, rounds: int, cases: Sequence[str] = ()) -> Plan:
    """`rounds` counts in a full plan only; no `cases` means all of the plan's own."""
    match size:
        case "quick":
            plan = quick()
        case "tiny":
            plan = tiny()
        case _:
            plan = full(rounds)
    wanted = tuple(case for case in CASES if case.name in cases)
    return replace(plan, cases=wanted) if wanted else plan
