"""CPU cost of the prefix index and of the choice: `python tests/benchmark/bench_match.py`.

Each backend holds eight conversations that share a 1,000-token system prompt; the request
continues one that the first backend holds, for the worst case of a match: all of it.
"""

from __future__ import annotations

import gc
import time
import tracemalloc

import numpy as np

from prefold.prefix_index.block_lru import BlockLru
from prefold.prefix_index.index import CacheModel, PrefixIndex
from prefold.prefix_index.prefix import Prefix
from prefold.prefix_index.slots import SlotCache
from prefold.proxy.routing import Candidate, Policy, RequestShape, Weights, choose

SEED = 1
BLOCK = 16
CONVERSATIONS = 8
SYSTEM = 1000
RANDOM = np.random.default_rng(0)


def prompt_of(tokens: np.ndarray[tuple[int], np.dtype[np.uint32]]) -> Prefix:
    return Prefix.of_tokens(tokens.copy(), SEED)


def conversation(tokens: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    drawn = RANDOM.integers(0, 50_000, tokens, dtype=np.uint32)
    drawn[:SYSTEM] = np.arange(SYSTEM)
    return drawn


def fleet(kind: str, backends: int, tokens: int) -> tuple[PrefixIndex, list[str], list[Prefix]]:
    """An index, the names in it, and the prompts that the first backend holds."""
    index = PrefixIndex()
    names = [f"backend-{number}" for number in range(backends)]
    held = [[conversation(tokens) for _ in range(CONVERSATIONS)] for _ in range(min(backends, 8))]
    for number, name in enumerate(names):
        cache: CacheModel
        if kind == "blocks":
            cache = BlockLru(CONVERSATIONS * (tokens + BLOCK), BLOCK)
        else:
            cache = SlotCache(CONVERSATIONS, tokens + 1000)
        index.set_cache(name, cache)
        for tokens_held in held[number % len(held)]:
            placement = index.begin(name, prompt_of(tokens_held), 0.0)
            assert placement is not None
            index.finish(name, placement, 0.0)
    return index, names, [prompt_of(tokens_held) for tokens_held in held[0]]


def next_turn(prompt: Prefix) -> Prefix:
    """The same prompt with 1 % of its end replaced by something new."""
    tokens = np.array(prompt.units, dtype=np.uint32)
    new = max(len(tokens) // 100, 1)
    tokens[-new:] = RANDOM.integers(0, 50_000, new, dtype=np.uint32)
    return prompt_of(tokens)


def measure(kind: str, backends: int, tokens: int, calls: int) -> None:
    """Print CPU microseconds of each stage of a request, each with a prompt of its own."""
    index, names, held = fleet(kind, backends, tokens)
    weights = Weights()
    prompts = [next_turn(held[number % len(held)]) for number in range(calls)]
    stages: list[list[int]] = []
    clock = time.thread_time_ns
    gc.collect()
    for prompt in prompts:
        times = [clock()]
        if kind == "blocks":
            prompt.chain(BLOCK)
        times.append(clock())
        matches = {name: index.match(prompt, name) for name in names}
        times.append(clock())
        candidates = [
            Candidate(
                name=name,
                cached_tokens=match.cached_tokens,
                evicted_reuse=match.evicted_reuse,
                queued_tokens=0,
                in_flight=0,
                prefill_tokens_per_s=5000.0,
            )
            for name, match in matches.items()
        ]
        times.append(clock())
        shape = RequestShape(prompt_tokens=prompt.length, affinity=prompt.affinity())
        decision = choose(Policy.PREFIX, candidates, shape, 0, weights)
        times.append(clock())
        placement = index.begin(decision.backend, prompt, 0.0)
        times.append(clock())
        assert placement is not None
        index.finish(decision.backend, placement, 0.0)
        times.append(clock())
        stages.append(times)
    spent = np.diff(np.array(stages), axis=1) / 1000
    cells = "".join(
        f"{p50:9.1f}{p99:8.1f}" for p50, p99 in np.percentile(spent, [50, 99], axis=0).T
    )
    print(f"{kind:7}{tokens:8}{backends:9}{cells}")


def memory(tokens_each: int, prompts: int) -> float:
    """Bytes kept by a BlockLru for each token it holds."""
    drawn = [conversation(tokens_each) for _ in range(prompts)]
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    cache = BlockLru(tokens_each * prompts, BLOCK)
    for tokens in drawn:
        cache.finish(cache.begin(prompt_of(tokens), 0.0), 0.0)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / cache.size_tokens


def main() -> None:
    print(f"CPU us, p50 and p99; blocks of {BLOCK} tokens, {CONVERSATIONS} slots or conversations")
    columns = ("chain", "match", "candidates", "choose", "begin", "finish")
    print(f"{'kind':7}{'tokens':>8}{'backends':>9}" + "".join(f"{c:>17}" for c in columns))
    for kind in ("blocks", "slots"):
        for tokens in (2_000, 8_000, 32_000, 128_000):
            for backends in (2, 8, 64):
                measure(kind, backends, tokens, calls=200 if tokens < 100_000 else 60)
    for tokens_each, prompts in ((2_000, 500), (32_000, 32)):
        each = memory(tokens_each, prompts)
        print(f"BlockLru, prompts of {tokens_each} tokens: {each:.2f} MB per million cached tokens")
    print("SlotCache keeps the prompts themselves: 4 MB per million cached tokens")


if __name__ == "__main__":
    main()
