"""A real scheduler and prefix cache (the mocker's) whose size the settings state wrongly: what is
expected of it with corrections and without them, in tokens."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from prefold.prefix_index.block_lru import BlockLru
from prefold.prefix_index.prefix import Prefix
from tests.support.mocker import MODEL, MockerUnavailable, install, mocker
from tests.support.requirements import skip_or_fail

BLOCK = 16
BLOCKS = 64
REQUESTS = 160


@pytest.fixture(scope="module")
def python() -> Path:
    try:
        return install()
    except MockerUnavailable as error:
        skip_or_fail(f"the mocker is not here: {error}")


def conversations(rng: random.Random) -> list[list[int]]:
    """Turns of ten conversations over two system prompts, the latest more often: about three times
    what the cache holds."""
    heads = [[rng.randrange(256) for _ in range(64)] for _ in range(2)]
    talks = [[*rng.choice(heads)] for _ in range(10)]
    prompts = []
    for _ in range(REQUESTS):
        talk = talks[min(int(rng.expovariate(0.35)), 9)]
        if len(talk) > 450:
            del talk[64:]
        talk += [rng.randrange(256) for _ in range(rng.randrange(20, 60))]
        prompts.append([*talk])
    return prompts


async def reported(url: str, prompts: list[list[int]]) -> list[int]:
    """Cached tokens of each, one after the other."""
    found = []
    async with aiohttp.ClientSession() as session:
        for prompt in prompts:
            body = {"model": MODEL, "prompt": prompt, "max_tokens": 1}
            async with session.post(f"{url}/v1/completions", json=body) as answer:
                usage: dict[str, Any] = (await answer.json())["usage"]
                found.append(usage["prompt_tokens_details"]["cached_tokens"])
    return found


def errors(
    cache: BlockLru, prompts: list[list[int]], cached: list[int], *, correct: bool
) -> list[int]:
    found = []
    for now, (prompt, told) in enumerate(zip(prompts, cached, strict=True)):
        placement = cache.begin(Prefix.of_tokens(np.array(prompt, dtype=np.uint32), 1), now)
        found.append(abs(placement.cached_tokens - told))
        if correct:
            cache.correct(placement, told, now)
        cache.finish(placement, now)
    return found


async def test_a_size_that_is_stated_wrongly_is_corrected(python: Path, tmp_path: Path) -> None:
    """Four times too large, or a guess of a quarter: of the second half's error less than a quarter
    is left; and where the size is right, corrections leave what is next to none as it is."""
    prompts = conversations(random.Random(3))
    with mocker(python, tmp_path, block_tokens=BLOCK, blocks=BLOCKS) as engine:
        cached = await reported(engine.url, prompts)
    half = REQUESTS // 2

    def late(blocks: int, most: int | None = None) -> tuple[int, int]:
        """Without corrections and with them."""
        made = [
            errors(
                BlockLru(blocks * BLOCK, BLOCK, most_tokens=None if most is None else most * BLOCK),
                prompts,
                cached,
                correct=correct,
            )
            for correct in (False, True)
        ]
        return sum(made[0][half:]), sum(made[1][half:])

    right = late(BLOCKS)
    assert right[0] == right[1] < sum(cached[half:]) // 100
    for wrong in (late(4 * BLOCKS), late(BLOCKS // 4, 4 * BLOCKS)):
        assert wrong[0] > sum(cached[half:]) // 10
        assert wrong[1] < wrong[0] // 4
