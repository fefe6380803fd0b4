"""In which order documents go out, so that prompts that hold the same ones begin alike.

Knows contexts (what stands before the documents) and documents by keyed digests only; no texts, no
clock: what was seen long ago is what was seen many orders ago.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from math import inf, log2

from xxhash import xxh3_64_intdigest

HALF_LIFE = 1024
"""Orders of one context after which what was seen counts half."""
MAX_DEPTH = 32
"""Documents of a chain that are learned: further ones are next to never shared in a row."""
MAX_KNOWN = 65_536
"""Links and counts of all contexts together; each takes about 150 bytes."""
MAX_KNOWN_OF_ONE = 16_384
"""Of one context; at more, it is pruned, which takes 5 ms."""
MAX_REMEMBERED = 262_144
"""Documents of all orders that are given again."""
MAX_CONTEXTS = 16_384


class _Link:
    """A document that followed others. `weight` is the logarithm of how often, on a scale that
    rises with time: so what is old falls behind, and nothing need be decayed."""

    __slots__ = ("following", "weight")

    def __init__(self) -> None:
        self.weight = -inf
        self.following: dict[int, _Link] = {}


class Chains:
    """The orders that were sent in one context. Mutable."""

    def __init__(self) -> None:
        self._first = _Link()
        self._shared: dict[int, float] = {}
        """Weight of each document, wherever it stood."""
        self._time = 0
        self._links = 0

    def __len__(self) -> int:
        return self._links + len(self._shared)

    def order(self, documents: Iterable[int]) -> list[int]:
        """Of different ones: along the chain that was sent most, as far as it is made of them; then
        the most shared first; new ones by digest."""
        followed = self.followed(documents)
        shared = self._shared
        left = set(documents).difference(followed)
        return followed + sorted(left, key=lambda one: (-shared.get(one, -inf), one))

    def followed(self, documents: Iterable[int]) -> list[int]:
        left = set(documents)
        chain: list[int] = []
        following = self._first.following
        while known := following.keys() & left:
            best = max(known, key=lambda one: (following[one].weight, one))
            chain.append(best)
            left.remove(best)
            following = following[best].following
        return chain

    def learn(self, order: Sequence[int]) -> None:
        self._time += 1
        now = self._time / HALF_LIFE
        for one in order:
            self._shared[one] = _once_more(self._shared.get(one, -inf), now)
        link = self._first
        for one in order[:MAX_DEPTH]:
            after = link.following.get(one)
            if after is None:
                after = link.following[one] = _Link()
                self._links += 1
            after.weight = _once_more(after.weight, now)
            link = after

    def prune(self) -> None:
        """About half of it goes, the least seen first."""
        weights = sorted(link.weight for link in _below(self._first))
        floor = weights[len(weights) // 2] if weights else inf
        waiting = [self._first]
        while waiting:
            link = waiting.pop()
            # Nothing that follows weighs more than what it follows.
            kept = {one: after for one, after in link.following.items() if after.weight > floor}
            link.following = kept
            waiting += kept.values()
        self._links = sum(1 for _ in _below(self._first))
        least_first = sorted(self._shared, key=self._shared.__getitem__)
        for one in least_first[: (len(least_first) + 1) // 2]:
            del self._shared[one]


def _once_more(weight: float, now: float) -> float:
    """log2(2**weight + 2**now)"""
    return now + log2(1.0 + 2.0 ** (weight - now))


def _below(first: _Link) -> Iterable[_Link]:
    waiting = list(first.following.values())
    while waiting:
        link = waiting.pop()
        yield link
        waiting += link.following.values()


class DocumentOrders:
    """Mutable and bounded. `decided` is told of each new order: context and documents as chosen.

    The same documents in the same context come out in the same order again, so that a conversation
    keeps the order of its earlier turns. Where a context was never seen before, nothing can be
    shared with anything, and documents stay as they were sent."""

    def __init__(self, decided: Callable[[int, Sequence[int]], None] | None = None) -> None:
        self._decided = decided
        self._contexts: OrderedDict[int, tuple[int, ...] | Chains] = OrderedDict()
        """Of one that was seen once, only what was sent in it."""
        self._remembered: OrderedDict[int, tuple[int, ...]] = OrderedDict()
        self._documents = 0
        self._known = 0

    def order(self, context: int, documents: Sequence[int]) -> Sequence[int]:
        """The same documents as they are to be sent, repeated ones next to each other."""
        key = _key(context, documents)
        chosen = self._remembered.get(key)
        if chosen is None:
            chosen = self._new(context, documents)
            if self._decided is not None:
                self._decided(context, chosen)
        self._note(context, key, chosen)
        return chosen

    def take_in(self, context: int, chosen: Sequence[int]) -> None:
        """An order that another process decided on. Where both decided before they knew of each
        other, the lesser one holds in both."""
        key, order = _key(context, chosen), tuple(chosen)
        ours = self._remembered.get(key)
        if ours is None or order < ours:
            self._note(context, key, order)

    @property
    def size(self) -> tuple[int, int, int]:
        """Contexts; links and counts in them; documents of remembered orders."""
        return len(self._contexts), self._known, self._documents

    def _new(self, context: int, documents: Sequence[int]) -> tuple[int, ...]:
        chains = self._contexts.get(context)
        if chains is None:
            return tuple(documents)
        if isinstance(chains, tuple):
            chains = _begun_with(chains)
        times = Counter(documents)
        return tuple(one for one in chains.order(times) for _ in range(times[one]))

    def _note(self, context: int, key: int, chosen: tuple[int, ...]) -> None:
        self._remember(key, chosen)
        seen = self._contexts.get(context)
        if seen is None:
            self._contexts[context] = chosen
        else:
            before = 0 if isinstance(seen, tuple) else len(seen)
            chains = _begun_with(seen) if isinstance(seen, tuple) else seen
            chains.learn(tuple(dict.fromkeys(chosen)))
            if len(chains) > MAX_KNOWN_OF_ONE:
                chains.prune()
            self._contexts[context] = chains
            self._known += len(chains) - before
        self._contexts.move_to_end(context)
        while self._known > MAX_KNOWN or len(self._contexts) > MAX_CONTEXTS:
            _, forgotten = self._contexts.popitem(last=False)
            self._known -= len(forgotten) if isinstance(forgotten, Chains) else 0

    def _remember(self, key: int, chosen: tuple[int, ...]) -> None:
        self._documents += len(chosen) - len(self._remembered.get(key, ()))
        self._remembered[key] = chosen
        self._remembered.move_to_end(key)
        while self._documents > MAX_REMEMBERED:
            _, forgotten = self._remembered.popitem(last=False)
            self._documents -= len(forgotten)


def _begun_with(order: tuple[int, ...]) -> Chains:
    chains = Chains()
    chains.learn(tuple(dict.fromkeys(order)))
    return chains


def _key(context: int, documents: Sequence[int]) -> int:
    """Of a context and which documents they are, in whatever order."""
    return xxh3_64_intdigest(array("Q", sorted(documents)).tobytes(), context)
