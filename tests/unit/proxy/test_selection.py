"""What the index and the pool are asked on the way to a choice."""

from __future__ import annotations

import numpy as np

from prefold.backends.backend import Backend, Mode
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
        index = PrefixIndex()
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

    def chosen(self, tokens: list[int]) -> str:
        prompt = Prompt({Mode.FEEDBACK: prefix(tokens)}, len(tokens))
        record = RequestRecord(endpoint="", received=0.0)
        return self._selector.select(self.backends, prompt, record).backend.name


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
