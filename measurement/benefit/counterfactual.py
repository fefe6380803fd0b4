"""What other routing policies would have reused of the same stream of requests: each with caches of
its own, fed with the rows of a ledger in the order in which they came.

Simulated, of whole blocks of 512 tokens, since that is what a ledger holds of prompts. Requests are
taken to last as long as they did, wherever they go. How a cache behaves comes from outside.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
from xxhash import xxh3_64_intdigest

from prefold.measurement.ledger.reader import LedgerRow

BLOCK_TOKENS = 512
AS_ROUTED = "as routed"


Begun = tuple[int, Callable[[float], None]]
"""Of a prompt in a cache: tokens that it reuses, and what is to be called when the request ends."""


class Cache(Protocol):
    """One backend's, as it is believed to behave."""

    def begin(self, blocks: Sequence[bytes], length: int, now: float) -> Begun:
        """Keys of the prompt's full blocks, and its length in tokens."""


class Shadow(msgspec.Struct, frozen=True, kw_only=True):
    """`reused_tokens` are simulated, in tokens as the engine counts them."""

    policy: str
    reused_tokens: int
    share: float


class Counterfactual(msgspec.Struct, frozen=True, kw_only=True):
    """Of the `requests` whose prompts' blocks are known, and that reached a backend.

    `reported_tokens` are what engines said of as many of them as they said something of,
    `reported_requests`; `modelled_tokens` what the simulation as routed has for these same ones:
    how far the two are apart is how far the simulation can be trusted.
    """

    requests: int
    left_out: int
    prompt_tokens: int
    cache_tokens: int
    shadows: tuple[Shadow, ...]
    """`as routed` first."""
    reported_requests: int
    reported_tokens: int
    modelled_tokens: int

    @property
    def blind(self) -> bool:
        """It sees nothing of what engines reused: what is shared fills no block."""
        return self.reported_tokens > 0 and self.modelled_tokens == 0


@dataclass(slots=True)
class _Fleet:
    """One policy's world. Mutable."""

    choose: Callable[[_Fleet, LedgerRow, Sequence[str]], str]
    new_cache: Callable[[], Cache]
    caches: dict[str, Cache] = field(default_factory=dict)
    in_flight: dict[str, int] = field(default_factory=dict)
    turn: int = 0
    reused: float = 0.0

    def send(self, row: LedgerRow, candidates: Sequence[str]) -> tuple[str, Begun]:
        backend = self.choose(self, row, candidates)
        self.turn += 1
        cache = self.caches.get(backend)
        if cache is None:
            cache = self.caches[backend] = self.new_cache()
        self.in_flight[backend] = self.in_flight.get(backend, 0) + 1
        return backend, cache.begin(row.blocks, row.prefix_tokens or 0, row.received)

    def finish(self, backend: str, begun: Begun, now: float) -> None:
        self.in_flight[backend] -= 1
        begun[1](now)


def _as_routed(fleet: _Fleet, row: LedgerRow, candidates: Sequence[str]) -> str:
    return row.backend or ""


def _round_robin(fleet: _Fleet, row: LedgerRow, candidates: Sequence[str]) -> str:
    return candidates[fleet.turn % len(candidates)]


def _least_load(fleet: _Fleet, row: LedgerRow, candidates: Sequence[str]) -> str:
    """Fewest requests in flight; of several, each in turn."""
    start = fleet.turn % len(candidates)
    turned = (*candidates[start:], *candidates[:start])
    return min(turned, key=lambda name: fleet.in_flight.get(name, 0))


def _rendezvous(fleet: _Fleet, row: LedgerRow, candidates: Sequence[str]) -> str:
    """Highest random weight of the first block; of a shorter prompt, of its conversation."""
    key = row.blocks[0] if row.blocks else row.conversation or row.id.to_bytes(8, "little")
    return max(candidates, key=lambda name: xxh3_64_intdigest(key + name.encode()))


POLICIES = {
    AS_ROUTED: _as_routed,
    "round robin": _round_robin,
    "least load": _least_load,
    "rendezvous": _rendezvous,
}


def counterfactual(
    rows: Iterable[LedgerRow],
    backends: Mapping[str, Sequence[str]],
    new_cache: Callable[[], Cache],
    cache_tokens: int,
) -> Counterfactual | None:
    """`rows` in order of arrival; `backends` are those that served each model; `new_cache` makes
    one of `cache_tokens`. None: no row says enough."""
    fleets = {name: _Fleet(choose, new_cache) for name, choose in POLICIES.items()}
    under_way: list[tuple[float, int, list[tuple[_Fleet, str, Begun]]]] = []
    requests = left_out = reported_requests = reported = 0
    prompts = modelled = 0.0
    for row in rows:
        length = row.prefix_tokens
        candidates = backends.get(row.model or "", ())
        known = bool(length) and len(row.blocks) == (length or 0) // BLOCK_TOKENS
        if not known or length is None or row.sent is None or not candidates:
            left_out += 1
            continue
        while under_way and under_way[0][0] <= row.received:
            _finish(heapq.heappop(under_way))
        requests += 1
        sent = [(fleet, *fleet.send(row, candidates)) for fleet in fleets.values()]
        # Without exact ids four bytes stand for a token: counts are brought to the engine's.
        exact = row.original_tokens is not None
        prompt = length if exact else row.prompt_tokens or length
        scale = prompt / length
        prompts += prompt
        for fleet, _, (reused, _) in sent:
            fleet.reused += reused * scale
        if row.reported_tokens is not None:
            reported_requests += 1
            reported += row.reported_tokens
            modelled += sent[0][2][0] * scale
        heapq.heappush(under_way, (row.received + row.end, row.id, sent))
    if not requests:
        return None
    return Counterfactual(
        requests=requests,
        left_out=left_out,
        prompt_tokens=round(prompts),
        cache_tokens=cache_tokens,
        shadows=tuple(
            Shadow(policy=name, reused_tokens=round(fleet.reused), share=fleet.reused / prompts)
            for name, fleet in fleets.items()
        ),
        reported_requests=reported_requests,
        reported_tokens=reported,
        modelled_tokens=round(modelled),
    )


def _finish(ended: tuple[float, int, list[tuple[_Fleet, str, Begun]]]) -> None:
    now, _, sent = ended
    for fleet, backend, begun in sent:
        fleet.finish(backend, begun, now)
