"""What the policies of other routers decide by: the loads they count, and the prefixes that they
remember to have sent where."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prefold.proxy.simulate.engine import BlockCache, EngineShape, Job, reusable_tokens
from prefold.proxy.simulate.router import Fleet
from prefold.proxy.simulate.trace import Request


@dataclass(slots=True)
class Load:
    """Of one backend, as a router counts it: from selection on."""

    in_flight: int = 0
    waiting: int = 0
    """Of these, those without a first token yet."""
    waiting_tokens: int = 0
    """Their prompts' tokens, less what was believed to be cached."""
    blocks: int = 0
    """Of the prompts in flight."""
    sent: int = 0
    """Requests, ever."""


@dataclass(slots=True)
class View:
    """What a policy sees of one request and the fleet."""

    request: Request
    now: float
    turn: int
    """Requests before this one."""
    loads: list[Load]
    matched: list[int]
    """Tokens of its prompt that each backend is remembered to hold; all 0 without a memory."""
    engine: EngineShape
    random: random.Random

    @property
    def ratios(self) -> list[float]:
        """Matched, of the prompt."""
        return [tokens / self.request.prompt_tokens for tokens in self.matched]

    def least(self, costs: Iterable[float], among: Iterable[int] | None = None) -> int:
        """The backend of the least cost; of several, any. `costs` are of all backends."""
        listed = list(costs)
        numbers = range(len(listed)) if among is None else list(among)
        best = min(listed[number] for number in numbers)
        return self.random.choice([number for number in numbers if listed[number] == best])

    def most_matched(self) -> list[int]:
        """Those that hold the longest prefix; all, if none holds any."""
        most = max(self.matched)
        return [number for number, tokens in enumerate(self.matched) if tokens == most]


Choose = Callable[[View], int]
Memory = Callable[[EngineShape], BlockCache]


def no_memory(engine: EngineShape) -> BlockCache:
    return BlockCache(0)


def as_the_engine(engine: EngineShape) -> BlockCache:
    """It forgets when an engine of that size would."""
    return BlockCache(engine.cache_tokens // engine.block_tokens)


def everything(engine: EngineShape) -> BlockCache:
    return BlockCache(None)


class Peer:
    """A router made of a policy and what it remembers of each backend."""

    def __init__(self, fleet: Fleet, seed: int, choose: Choose, memory: Memory) -> None:
        self._choose = choose
        self._engine = fleet.engine
        self._remembers = memory is not no_memory
        self._memories = [memory(fleet.engine) for _ in range(fleet.backends)]
        self._loads = [Load() for _ in range(fleet.backends)]
        self._random = random.Random(seed)
        self._turn = 0
        self._waiting: dict[int, int] = {}
        """Tokens counted as waiting, by the identity of the request."""

    def route(self, request: Request, now: float) -> int:
        keys = request.prefix.chain(self._engine.block_tokens)
        matched = [0] * len(self._loads)
        if self._remembers:
            block = self._engine.block_tokens
            matched = [
                reusable_tokens(request, memory.held(keys), block) for memory in self._memories
            ]
        view = View(request, now, self._turn, self._loads, matched, self._engine, self._random)
        number = self._choose(view)
        if self._remembers:
            self._memories[number].touch(keys)
        self._count(self._loads[number], request, matched[number])
        return number

    def _count(self, load: Load, request: Request, matched: int) -> None:
        self._turn += 1
        uncached = self._waiting[id(request)] = request.prompt_tokens - matched
        load.in_flight += 1
        load.waiting += 1
        load.waiting_tokens += uncached
        load.blocks += len(request.prefix.chain(self._engine.block_tokens))
        load.sent += 1

    def first_token(self, job: Job, now: float) -> None:
        load = self._loads[job.backend]
        load.waiting -= 1
        load.waiting_tokens -= self._waiting.pop(id(job.request))

    def finished(self, job: Job, now: float) -> None:
        load = self._loads[job.backend]
        load.in_flight -= 1
        load.blocks -= len(job.keys)
