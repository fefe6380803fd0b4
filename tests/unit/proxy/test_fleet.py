"""A backend that becomes ready: what is believed of its cache then."""

from collections.abc import Iterator

import numpy as np
import pytest

from prefold.backends.backend import Backend, Mode
from prefold.backends.engine import (
    BlockCapacity,
    Capacity,
    Endpoint,
    EngineFacts,
    NoPrefixCache,
    SlotCapacity,
)
from prefold.backends.health import HealthRules
from prefold.prefix_index.index import NOTHING, PrefixIndex
from prefold.prefix_index.prefix import Prefix
from prefold.proxy.catalog import ModelCatalog
from prefold.proxy.fleet import Fleet

PROMPT = Prefix.of_tokens(np.arange(100, dtype=np.uint32), 1)


def no_endpoint(backend: Backend) -> Endpoint:
    raise AssertionError("a backend without models is asked nothing")


@pytest.fixture
def index() -> PrefixIndex:
    return PrefixIndex()


@pytest.fixture
def fleet(index: PrefixIndex) -> Iterator[Fleet]:
    catalog = ModelCatalog({}, {}, memo_bytes=0, inline_chars=0)
    yield Fleet(
        index=index,
        catalog=catalog,
        endpoint=no_endpoint,
        default_capacity_tokens=1000,
        default_block_tokens=10,
        secret=b"s",
    )
    catalog.close()


def backend() -> Backend:
    return Backend(name="b", url="http://b", headers={}, engine=None, rules=HealthRules())


def compute(index: PrefixIndex) -> int:
    """Send the prompt twice; how much of it the second time should find."""
    for _ in range(2):
        placement = index.begin("b", PROMPT, 0.0)
        if placement is not None:
            index.finish("b", placement, 1.0)
    return index.match(PROMPT, "b").cached_tokens


@pytest.mark.parametrize(
    ("capacity", "cached"),
    [
        (BlockCapacity(blocks=200, block_tokens=32), 96),
        (SlotCapacity(slots=1, context_tokens=200), 99),
        (None, 90),
        (NoPrefixCache(), 0),
    ],
)
async def test_a_cache_is_modelled_as_its_engine_describes_it(
    fleet: Fleet, index: PrefixIndex, capacity: Capacity | None, cached: int
) -> None:
    """Blocks, slots, the default where it does not tell, and nothing where it keeps nothing."""
    await fleet.ready(backend(), EngineFacts(models=(), capacity=capacity), True)
    assert compute(index) == cached


@pytest.mark.parametrize("capacity", [BlockCapacity(blocks=200, block_tokens=32), NoPrefixCache()])
async def test_a_backend_that_comes_back_holds_nothing(
    fleet: Fleet, index: PrefixIndex, capacity: Capacity
) -> None:
    """Its cache went with its process; also where it came back without one."""
    mine = backend()
    before = EngineFacts(models=(), capacity=BlockCapacity(blocks=9, block_tokens=16))
    await fleet.ready(mine, before, True)
    assert compute(index) == 96
    await fleet.ready(mine, before, False)
    assert index.size_tokens("b") > 0, "it did not restart"
    await fleet.ready(mine, EngineFacts(models=(), capacity=capacity), True)
    assert index.size_tokens("b") == 0
    assert index.match(PROMPT, "b") == NOTHING
    assert mine.mode is Mode.FEEDBACK
