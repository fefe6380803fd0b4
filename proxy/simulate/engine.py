"""What is simulated as true: an engine with a block cache, one prefill at a time, decode slots.

Plain on purpose, and not the product's own model of a cache, so that its mistakes would show.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from prefold.proxy.simulate.trace import Request


class BlockCache:
    """LRU over blocks, one entry each. A prompt touches its blocks from the last to the first, so
    tails go before heads, and what is held is closed under prefixes."""

    def __init__(self, capacity_blocks: int | None) -> None:
        """None: without bound."""
        self._capacity = capacity_blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self.evicted = 0
        """Blocks, so far."""

    def __len__(self) -> int:
        return len(self._blocks)

    def held(self, keys: Sequence[int]) -> int:
        """Leading blocks of these that are in the cache."""
        blocks = self._blocks
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high) // 2
            if keys[middle] in blocks:
                low = middle + 1
            else:
                high = middle
        return low

    def touch(self, keys: Sequence[int]) -> None:
        """Of a prompt larger than the cache, the head is kept."""
        blocks = self._blocks
        if self._capacity is None:
            blocks.update(dict.fromkeys(keys))
            return
        for key in reversed(keys[: self._capacity]):
            if key in blocks:
                blocks.move_to_end(key)
            else:
                blocks[key] = None
        while len(blocks) > self._capacity:
            blocks.popitem(last=False)
            self.evicted += 1


def reusable_tokens(request: Request, held_blocks: int, block_tokens: int) -> int:
    """Whole blocks; at least the last token is computed."""
    return min(held_blocks, (request.prompt_tokens - 1) // block_tokens) * block_tokens


@dataclass(slots=True, eq=False)
class Job:
    """One request in one engine."""

    request: Request
    keys: Sequence[int]
    backend: int
    sent: float
    cached_tokens: int = 0
    """True ones: known when its prefill begins."""
    started: float = 0.0

    @property
    def computed_tokens(self) -> int:
        return self.request.prompt_tokens - self.cached_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineShape:
    cache_tokens: int
    block_tokens: int
    prefill_tokens_per_s: float
    slots: int
    """Requests that may be in prefill or decode at a time."""
    token_s: float
    """Of decode, for each token of the answer."""


@dataclass(slots=True)
class Engine:
    """First come, first served. A request holds a slot from its prefill on to its last token.

    Not modelled: that prefill slows decode and the other way round, that running requests pin
    their blocks, and that the answer's blocks are cached too (a trace does not know them).
    """

    shape: EngineShape
    cache: BlockCache = field(init=False)
    computed_tokens: int = 0
    _waiting: deque[Job] = field(default_factory=deque)
    _prefilling: Job | None = None
    _running: int = 0

    def __post_init__(self) -> None:
        self.cache = BlockCache(self.shape.cache_tokens // self.shape.block_tokens)

    def submit(self, job: Job, now: float) -> float | None:
        """When its prefill will end, if it begins now."""
        self._waiting.append(job)
        return self.start(now)

    def start(self, now: float) -> float | None:
        """The next prefill, if there is one and nothing is in its way: when it will end."""
        if self._prefilling is not None or not self._waiting or self._running >= self.shape.slots:
            return None
        job = self._prefilling = self._waiting.popleft()
        self._running += 1
        held = self.cache.held(job.keys)
        job.cached_tokens = reusable_tokens(job.request, held, self.shape.block_tokens)
        job.started = now
        self.cache.touch(job.keys)
        self.computed_tokens += job.computed_tokens
        return now + job.computed_tokens / self.shape.prefill_tokens_per_s

    def prefilled(self) -> Job:
        """The first token is out. Call `start` afterwards."""
        assert self._prefilling is not None
        job, self._prefilling = self._prefilling, None
        return job

    def decode_s(self, job: Job) -> float:
        return job.request.output_tokens * self.shape.token_s

    def finish(self, job: Job) -> None:
        """Its slot is free, and its blocks count as used now. Call `start` afterwards."""
        self._running -= 1
        self.cache.touch(job.keys)
