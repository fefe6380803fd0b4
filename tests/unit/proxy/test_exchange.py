"""One attempt's claims: that they begin and end with it."""

import asyncio

import numpy as np
import pytest

from prefold.backends.backend import Backend
from prefold.backends.health import HealthRules
from prefold.prefix_index.block_lru import BlockLru
from prefold.prefix_index.index import PrefixIndex
from prefold.prefix_index.prefix import Prefix
from prefold.proxy.errors import NotEncodable
from prefold.proxy.exchange import Exchange
from prefold.proxy.protocol import CHUNKS

PROMPT = Prefix.of_tokens(np.arange(100, dtype=np.uint32), 1)


class Scene:
    def __init__(self) -> None:
        self.index = PrefixIndex()
        self.index.set_cache("b", BlockLru(capacity_tokens=1000, block_tokens=10))
        self.backend = Backend(
            name="b", url="http://b", headers={}, engine=None, rules=HealthRules()
        )
        self.whole: asyncio.Future[Prefix] = asyncio.get_running_loop().create_future()

    def exchange(self) -> Exchange:
        return Exchange(
            self.backend,
            CHUNKS,
            lambda: 0.0,
            index=self.index,
            whole=self.whole,
            uncached_tokens=100,
        )

    @property
    def cached(self) -> int:
        return self.index.match(PROMPT, "b").cached_tokens


async def test_a_prompt_that_is_known_later_is_placed_later() -> None:
    """Its load counts from the beginning; what is expected of the cache is known with the ids."""
    scene = Scene()
    exchange = scene.exchange()
    assert (scene.backend.queued_tokens, scene.cached) == (100, 0)
    scene.whole.set_result(PROMPT)
    await asyncio.sleep(0)

    assert scene.cached == 90
    assert exchange.placed_late is not None
    assert exchange.placed_late.cached_tokens == 0
    exchange.close()


@pytest.mark.parametrize("computed", [True, False])
async def test_a_prompt_that_is_known_after_the_answer_counts_if_it_was_computed(
    computed: bool,
) -> None:
    """An engine holds what it computed, whenever we get to know what that was."""
    scene = Scene()
    exchange = scene.exchange()
    if computed:
        exchange._prefilled()
    exchange.close()
    scene.whole.set_result(PROMPT)
    await asyncio.sleep(0)

    assert scene.cached == (90 if computed else 0)
    assert scene.backend.queued_tokens == 0


async def test_a_prompt_that_is_never_known_is_not_placed() -> None:
    """A lone surrogate, say, is found only when its text is encoded."""
    scene = Scene()
    exchange = scene.exchange()
    scene.whole.set_exception(NotEncodable("no"))
    await asyncio.sleep(0)
    exchange.close()

    assert exchange.placed_late is None
    assert scene.cached == 0
