"""One real llama.cpp engine with two slots behind the proxy: what is expected of each request
beside what the engine then reports, over answers, bursts, and traffic that does not pass the proxy.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from prefold.proxy.serve import Running
from tests.conftest import StartEngine
from tests.support.proxy import proxy_before

pytestmark = pytest.mark.engine

ANSWER = 6


class Caller:
    """Asks for completions of token ids; notes expected and reported cached tokens."""

    def __init__(self, http: aiohttp.ClientSession, server: Running) -> None:
        self._http = http
        self._server = server
        self.expected: list[int] = []
        self.reported: list[int] = []

    async def ask(self, prompt: list[int]) -> None:
        body = {
            "model": "smollm2",
            "prompt": prompt,
            "max_tokens": ANSWER,
            "temperature": 0,
            "ignore_eos": True,
        }
        async with self._http.post(f"{self._server.url}/v1/completions", json=body) as answer:
            told: dict[str, Any] = await answer.json()
            decision = dict(
                pair.split("=", 1) for pair in answer.headers["X-Prefold-Decision"].split("; ")
            )
        assert decision["mode"] == "feedback"
        self.expected.append(int(decision["expected_cached_tokens"]))
        self.reported.append(told["timings"]["cache_n"])

    def metric(self, name: str) -> float:
        exposed = self._server.proxy.metrics.exposition().decode()
        [value] = [
            line.rpartition(" ")[2]
            for line in exposed.splitlines()
            if line.startswith((f"{name} ", f"{name}{{"))
        ]
        return float(value)


@pytest.fixture(scope="module")
def url(start_engine: StartEngine) -> str:
    return start_engine(slots=2)


@pytest.fixture
async def caller(url: str) -> AsyncIterator[Caller]:
    """Its proxy believes that the engine holds nothing."""
    async with proxy_before([url]) as server, aiohttp.ClientSession() as http:
        yield Caller(http, server)


async def direct(url: str, prompt: list[int], answer: int = 1) -> list[int]:
    """Not through the proxy, and in the engine's own form, which tells the tokens of its answer."""
    body = {
        "prompt": prompt,
        "n_predict": answer,
        "temperature": 0,
        "ignore_eos": True,
        "return_tokens": True,
    }
    async with aiohttp.ClientSession() as http, http.post(f"{url}/completion", json=body) as told:
        tokens: list[int] = (await told.json())["tokens"]
        return tokens


def prompt(seed: int) -> list[int]:
    """Of 120 tokens, which no other one shares."""
    rng = random.Random(seed)
    return [rng.randrange(1000, 40_000) for _ in range(120)]


async def test_the_next_turn_finds_the_answer_too(url: str, caller: Caller) -> None:
    """All of it but the last token, which the engine never computed on. A prompt that goes on in
    another way finds what is common, and that is no reason to doubt its slot."""
    first = prompt(1)
    await caller.ask(first)
    answer = await direct(url, first, ANSWER)  # the same again, to learn its ids
    await caller.ask([*first, *answer, 5, 6, 7, 8])
    assert caller.expected[1] == caller.reported[1] == 120 + ANSWER - 1

    other = prompt(2)
    await caller.ask(other)
    await caller.ask([*other, *range(2000, 2000 + ANSWER)])
    assert (caller.expected[3], caller.reported[3]) == (120 + ANSWER - 1, 120)
    await caller.ask([*other, *range(2000, 2000 + ANSWER)])
    assert caller.expected[4] == caller.reported[4] == 120 + ANSWER - 1
    assert caller.metric("prefold_prediction_error_tokens_total") == ANSWER - 1 + caller.reported[0]


async def test_a_burst_on_one_prefix_is_on_both_slots(caller: Caller) -> None:
    """Two at once: one finds it, the other one computes it again, in whichever order they came;
    from then on both slots hold it."""
    shared = prompt(3)
    await caller.ask(shared)
    await asyncio.gather(caller.ask([*shared, 1, 2]), caller.ask([*shared, 3, 4]))
    assert sorted(caller.expected[1:]) == sorted(caller.reported[1:]) == [0, 120]
    await caller.ask([*shared, 1, 2])
    await caller.ask([*shared, 3, 4])
    assert caller.expected[3:] == caller.reported[3:] == [121, 121]


async def test_what_others_overwrote_is_missed_once(url: str, caller: Caller) -> None:
    """The index goes wrong for as many requests as slots were taken from it, and is right after
    that: error before, none later."""
    mine = [prompt(seed) for seed in (4, 5)]
    for one in mine:
        await caller.ask(one)
    for seed in (6, 7):
        await direct(url, prompt(seed))
    for _ in range(2):
        for one in mine:
            await caller.ask(one)
    assert caller.expected[2:] == [119, 119, 119, 119]
    assert caller.reported[2:] == [0, 0, 119, 119]
    assert caller.metric("prefold_index_lost_tokens_total") == 2 * 119
