"""Orders compared without an engine: how many document tokens a cache would have reused.

The cache is a tree of documents in order, least recently used first out, its leaves before its
branches, as engines keep their blocks; what is counted is words, in place of tokens.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence

from xxhash import xxh3_64_intdigest

from prefold.proxy.documents.order import Chains, DocumentOrders
from tests.benchmark.rag.corpus import Question

Order = Callable[[Sequence[int]], Sequence[int]]
CONTEXT = 1


class TreeCache:
    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._held: OrderedDict[int, int] = OrderedDict()
        self._size = 0

    def reused(self, order: Sequence[int], sizes: dict[int, int]) -> int:
        """Of this prompt; and it is in the cache from then on."""
        reused, before, known = 0, 0, True
        keys = []
        for one in order:
            before = hash((before, one))
            known = known and before in self._held
            reused += sizes[one] if known else 0
            keys.append((before, sizes[one]))
        for key, size in reversed(keys):
            if key not in self._held:
                self._held[key] = size
                self._size += size
            self._held.move_to_end(key)
        while self._size > self._capacity:
            self._size -= self._held.popitem(last=False)[1]
        return reused


def compare(
    questions: Sequence[Question], capacities: Sequence[int], seed: int
) -> dict[str, list[float]]:
    """By order, the share of words reused with each capacity."""
    sizes = {_digest(text): len(text.split()) for one in questions for text in one.documents}
    prompts = [[_digest(text) for text in one.documents] for one in questions]
    total = sum(sizes[one] for prompt in prompts for one in prompt)
    found = {}
    for name, make in orders(prompts).items():
        shares = []
        for capacity in capacities:
            order, cache = make(), TreeCache(capacity)
            rng = random.Random(seed)
            sent = [order(rng.sample(prompt, len(prompt))) for prompt in prompts]
            shares.append(sum(cache.reused(one, sizes) for one in sent) / total)
        found[name] = shares
    return found


def orders(prompts: Sequence[Sequence[int]]) -> dict[str, Callable[[], Order]]:
    often = Counter(one for prompt in prompts for one in prompt)
    return {
        "as retrieved": lambda: lambda prompt: prompt,
        "by digest": lambda: sorted,
        "most shared so far, then digest": _by_count,
        "chains, then digest": _chains_then_digest,
        "chains, then most shared (prefold)": _prefold,
        "most shared of all, known beforehand": lambda: (
            lambda prompt: sorted(prompt, key=lambda one: (-often[one], one))
        ),
    }


def _prefold() -> Order:
    made = DocumentOrders()
    return lambda prompt: made.order(CONTEXT, prompt)


def _by_count() -> Order:
    seen: Counter[int] = Counter()

    def order(prompt: Sequence[int]) -> Sequence[int]:
        chosen = sorted(prompt, key=lambda one: (-seen[one], one))
        seen.update(prompt)
        return chosen

    return order


def _chains_then_digest() -> Order:
    chains = Chains()

    def order(prompt: Sequence[int]) -> Sequence[int]:
        chosen = chains.followed(prompt)
        chosen += sorted(set(prompt) - set(chosen))
        chains.learn(chosen)
        return chosen

    return order


def _digest(text: str) -> int:
    return xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))
