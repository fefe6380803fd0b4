"""Workloads that share prefixes, made up from a seed: the same figures give the same requests.

What the names mean is in the docstrings of the functions in WORKLOADS.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, count, islice

from prefold.proxy.simulate.trace import Row, Trace, build_trace

BLOCK = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticOptions:
    requests: int = 12_000
    seed: int = 1
    requests_per_s: float = 4.0


class _Source:
    """Fresh block ids and random figures."""

    def __init__(self, options: SyntheticOptions) -> None:
        self.random = random.Random(options.seed)
        self.rate = options.requests_per_s
        self._ids = count(1)

    def blocks(self, number: int) -> list[int]:
        return list(islice(self._ids, number))

    def spread(self, mean: float) -> int:
        """At least 1; heavy-tailed as lengths of prompts are (log-normal, sigma 1)."""
        return max(round(mean * self.random.lognormvariate(-0.5, 1.0)), 1)

    def gap(self, share: float = 1.0) -> float:
        """Seconds between arrivals of a Poisson process with this share of the rate."""
        return self.random.expovariate(self.rate * share)

    def row(self, at: float, blocks: list[int]) -> Row:
        """With a rest that fills no block."""
        tokens = len(blocks) * BLOCK + self.random.randrange(1, BLOCK)
        return Row(at, tokens, self.spread(300), blocks)


def shared_prefix(source: _Source) -> Iterator[Row]:
    """256 system prompts of 8k tokens on average, asked for by Zipf's law (exponent 1), each with
    a question of its own: many-tenant chat, or few-shot prompts."""
    prompts = [source.blocks(source.spread(32)) for _ in range(256)]
    weights = list(accumulate(1 / rank for rank in range(1, len(prompts) + 1)))
    at = 0.0
    while True:
        at += source.gap()
        (prompt,) = source.random.choices(prompts, cum_weights=weights)
        yield source.row(at, prompt + source.blocks(source.spread(4)))


def conversations(source: _Source) -> Iterator[Row]:
    """Chats of 5 turns on average over one system prompt: each turn repeats all before it and adds
    about 1k tokens, after a pause of 60 s on average; the first message may be long."""
    system = source.blocks(4)
    turns: list[tuple[float, int, list[int]]] = []
    ids = count()
    start = 0.0
    while True:
        if not turns or start < turns[0][0]:
            heapq.heappush(turns, (start, next(ids), system + source.blocks(source.spread(16))))
            start += source.gap(0.2)
            continue
        at, _, history = heapq.heappop(turns)
        yield source.row(at, history)
        if source.random.random() < 0.8:
            later = at + source.random.expovariate(1 / 60)
            longer = history + source.blocks(source.spread(4))
            heapq.heappush(turns, (later, next(ids), longer))


def agents(source: _Source) -> Iterator[Row]:
    """Tasks of 20 steps on average over one of 8 tool descriptions of 6k tokens: each step adds
    about 1.5k tokens and follows the last one after 8 s on average."""
    tools = [source.blocks(24) for _ in range(8)]
    steps: list[tuple[float, int, list[int]]] = []
    ids = count()
    start = 0.0
    while True:
        if not steps or start < steps[0][0]:
            task = source.random.choice(tools) + source.blocks(source.spread(4))
            heapq.heappush(steps, (start, next(ids), task))
            start += source.gap(0.05)
            continue
        at, _, history = heapq.heappop(steps)
        yield source.row(at, history)
        if source.random.random() < 0.95:
            later = at + source.random.expovariate(1 / 8)
            longer = history + source.blocks(source.spread(6))
            heapq.heappush(steps, (later, next(ids), longer))


def documents(source: _Source) -> Iterator[Row]:
    """Questions on one of 2,000 documents of 12k tokens on average (Zipf, exponent 0.8) that comes
    right after a short common instruction; a quarter of the prompts share nothing but that."""
    instruction = source.blocks(1)
    texts = [source.blocks(source.spread(48)) for _ in range(2000)]
    weights = list(accumulate(rank**-0.8 for rank in range(1, len(texts) + 1)))
    at = 0.0
    while True:
        at += source.gap()
        if source.random.random() < 0.25:
            text = source.blocks(source.spread(48))
        else:
            (text,) = source.random.choices(texts, cum_weights=weights)
        yield source.row(at, instruction + text + source.blocks(1))


def unique(source: _Source) -> Iterator[Row]:
    """Prompts of 8k tokens on average that share nothing: what routing by prefix must not harm."""
    at = 0.0
    while True:
        at += source.gap()
        yield source.row(at, source.blocks(source.spread(32)))


WORKLOADS: dict[str, Callable[[_Source], Iterator[Row]]] = {
    "shared-prefix": shared_prefix,
    "conversations": conversations,
    "agents": agents,
    "documents": documents,
    "unique": unique,
}


def make_trace(workload: str, options: SyntheticOptions) -> Trace:
    """Raises KeyError for a workload that is not in WORKLOADS."""
    rows = WORKLOADS[workload](_Source(options))
    name = f"synthetic {workload}, seed {options.seed}"
    return build_trace(name, BLOCK, islice(rows, options.requests))
