"""What the index and the pool are asked on the way to a choice."""

from __future__ import annotations

import numpy as np
import pytest

from prefold.backends.backend import Backend, Lease, Mode
from prefold.backends.health import HealthRules
from prefold.backends.pool import BackendPool
from prefold.measurement.record import RequestRecord
from prefold.prefix_index.block_lru import BlockLru
from prefold.prefix_index.index import PrefixIndex
from prefold.prefix_index.prefix import Prefix
from prefold.proxy.prompt import Prompt
from prefold.proxy.routing import Policy, Weights
from prefold.proxy.selection import Selector

HEAD = list(range(1024))
"""What all prompts begin with."""


def prefix(tokens: list[int]) -> Prefix:
    return Prefix.of_tokens(np.array(tokens, dtype=np.uint32), seed=1)


def body(number: int) -> list[int]:
    """Another 512 tokens for each number."""
    return [10_000 + number * 512 + place for place in range(512)]


class Bench:
    """Eight idle backends that hold the head already."""

    def __init__(self, policy: Policy) -> None:
        self.backends = [
            Backend(name=f"b{number}", url="", headers={}, engine=None, rules=HealthRules())
            for number in range(8)
        ]
        self.index = index = PrefixIndex()
        for one in self.backends:
            one.mode = Mode.FEEDBACK
            index.set_cache(one.name, BlockLru(100_000, 16))
            placement = index.begin(one.name, prefix(HEAD), 0.0)
            assert placement is not None
            index.finish(one.name, placement, 0.0)
        self._selector = Selector(
            pool=BackendPool(self.backends, 1000.0),
            index=index,
            policy=policy,
            weights=Weights(),
            clock=lambda: 0.0,
        )

    def chosen(
        self, tokens: list[int], affinity: int | None = None, policy: Policy | None = None
    ) -> str:
        prompt = Prompt({Mode.FEEDBACK: prefix(tokens)}, len(tokens), affinity=affinity)
        record = RequestRecord(endpoint="", received=0.0)
        return self._selector.select(self.backends, prompt, record, policy).backend.name


def test_prompts_are_told_apart_by_what_nobody_holds() -> None:
    """A head that all share and all hold does not send all of them to one backend; those that go on
    alike after it still meet."""
    bench = Bench(Policy.PREFIX)
    homes = [bench.chosen(HEAD + body(number)) for number in range(64)]

    assert set(homes) == {one.name for one in bench.backends}
    assert homes == [bench.chosen(HEAD + body(number) + [7, 7]) for number in range(64)]


def test_the_plain_hash_looks_at_the_beginning_alone() -> None:
    """Whatever is held: it is there to be compared with."""
    bench = Bench(Policy.RENDEZVOUS)

    assert len({bench.chosen(HEAD + body(number)) for number in range(64)}) == 1


@pytest.mark.parametrize("policy", [Policy.PREFIX, Policy.RENDEZVOUS])
def test_what_a_client_says_belongs_together_meets_where_all_are_as_good(policy: Policy) -> None:
    """Whatever the prompts are; and prompts that are the same part where clients say so."""
    bench = Bench(policy)

    assert len({bench.chosen(HEAD + body(number), affinity=5) for number in range(64)}) == 1
    homes = {bench.chosen(HEAD + body(1), affinity=number) for number in range(64)}
    assert homes == {one.name for one in bench.backends}


def test_what_a_client_says_outweighs_neither_what_is_held_nor_what_is_queued() -> None:
    """It is a hint: the score decides first."""
    bench = Bench(Policy.PREFIX)
    home = bench.chosen(HEAD + body(1), affinity=5)
    holder, other = (one for one in bench.backends if one.name != home), HEAD + body(2)
    name = next(holder).name
    placement = bench.index.begin(name, prefix(other), 0.0)
    assert placement is not None
    bench.index.finish(name, placement, 0.0)
    assert bench.chosen(other, affinity=5) == name
    Lease(next(one for one in bench.backends if one.name == home), 4000, 0.0)

    assert bench.chosen(HEAD + body(1), affinity=5) != home


def test_a_request_may_be_routed_by_another_policy() -> None:
    """That of its arm, with all that belongs to it; the next one goes as before."""
    bench = Bench(Policy.PREFIX)
    hashed = {bench.chosen(HEAD + body(number), policy=Policy.RENDEZVOUS) for number in range(64)}
    turns = [bench.chosen(HEAD + body(1), policy=Policy.ROUND_ROBIN) for _ in range(8)]

    assert len(hashed) == 1
    assert len(set(turns)) == 8
    assert bench.chosen(HEAD + body(1)) == bench.chosen(HEAD + body(1))
