"""Memory of each cache model for a million cached tokens: `python
tests/benchmark/bench_index_memory.py`.

Filled to its capacity with conversations of 8,000 tokens over a system prompt of 500, by
tracemalloc; prompts are made and dropped one by one, as requests are.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import numpy as np

from prefold.prefix_index.block_lru import BlockLru
from prefold.prefix_index.event_cache import EventCache
from prefold.prefix_index.index import CacheModel
from prefold.prefix_index.prefix import Prefix
from prefold.prefix_index.slots import SlotCache

TOKENS = 1_000_000
CONVERSATION = 8_000
SYSTEM = 500
"""Less than the tenth of a prompt by which llama.cpp takes the slot that holds it."""
BLOCK = 16


def prompts(count: int) -> list[np.ndarray[tuple[int], np.dtype[np.uint32]]]:
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 50_000, (count, CONVERSATION), dtype=np.uint32)
    drawn[:, :SYSTEM] = np.arange(SYSTEM)
    return list(drawn)


def place(cache: CacheModel, tokens: np.ndarray[tuple[int], np.dtype[np.uint32]]) -> None:
    placement = cache.begin(Prefix.of_tokens(tokens.copy(), 1), 0.0)
    cache.finish(placement, 0.0)


def blocks() -> CacheModel:
    return BlockLru(TOKENS, BLOCK)


def half_doubted() -> CacheModel:
    """As much again is remembered beside what is believed."""
    return BlockLru(TOKENS, BLOCK, most_tokens=2 * TOKENS)


def slots() -> CacheModel:
    return SlotCache(TOKENS // CONVERSATION, CONVERSATION + 1)


def told() -> CacheModel:
    cache = EventCache(block_tokens=BLOCK, capacity_tokens=TOKENS, seed_of=lambda *_: 1)
    cache.void(complete=True)
    cache.trust()
    return cache


def tell(cache: CacheModel, tokens: np.ndarray[tuple[int], np.dtype[np.uint32]]) -> None:
    """Hashes as vLLM's are, of 32 bytes."""
    assert isinstance(cache, EventCache)
    names = [tokens[: end + BLOCK].tobytes()[-32:] for end in range(0, len(tokens), BLOCK)]
    cache.stored(names, None, tokens, BLOCK)


def main() -> None:
    made: tuple[tuple[str, Callable[[], CacheModel], Callable[..., None], int], ...] = (
        ("BlockLru", blocks, place, 150),
        ("BlockLru, as much again doubted", half_doubted, place, 300),
        ("SlotCache", slots, place, TOKENS // CONVERSATION),
        ("EventCache", told, tell, 140),
    )
    print("MB for each million of cached tokens")
    for name, make, fill, count in made:
        given = prompts(count)
        gc.collect()
        tracemalloc.start()
        cache = make()
        for tokens in given:
            fill(cache, tokens)
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        print(f"{name:34} {used / cache.size_tokens:6.2f}")


if __name__ == "__main__":
    main()
