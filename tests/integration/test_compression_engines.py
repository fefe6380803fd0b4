"""Compression before real llama.cpp engines: it keeps the reuse of their KV caches."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from prefold.proxy.compression.switch import HEADER
from prefold.proxy.settings import Compression
from tests.support.prose import prose
from tests.support.proxy import BASE, proxy_before, until
from tests.support.requirements import skip_or_fail

PATH = "/v1/chat/completions"
TURNS = 3
SETTINGS = replace(
    BASE,
    compression=Compression(by_header=True, min_tokens=100, min_chars=200, deadline_s=20.0),
)
Message = dict[str, Any]


@pytest.fixture(autouse=True)
def _wordfreq() -> None:
    try:
        import wordfreq  # noqa: F401
    except ImportError:
        skip_or_fail("needs wordfreq: pip install 'prefold[compression-lexical]'")


def as_is(messages: list[Message]) -> list[Message]:
    return messages


def compressed_anew(messages: list[Message]) -> list[Message]:
    """As a client does that compresses all but the system's prompt each turn: half of its words, by
    a rank among all of them, so that every turn changes what is left of the earlier ones."""
    system, *messages = messages
    words = [word for message in messages for part in texts(message) for word in part.split()]
    order = sorted(range(len(words)), key=lambda n: (-len(words[n]), hash_of(words[n], len(words))))
    kept, at = set(order[: len(words) // 2]), 0
    made = [system]
    for message in messages:
        parts = []
        for part in texts(message):
            split = part.split()
            chosen = [word for n, word in enumerate(split) if at + n in kept]
            at += len(split)
            parts.append(" ".join(chosen) or "-")
        made.append({"role": message["role"], "content": "\n".join(parts)})
    return made


def hash_of(word: str, seed: int) -> int:
    return sum((n + seed) * ord(letter) for n, letter in enumerate(word)) % 97


def texts(message: Message) -> list[str]:
    content = message["content"]
    return [content] if isinstance(content, str) else [part["text"] for part in content]


async def cached_share(
    http: aiohttp.ClientSession,
    seed: int,
    mode: str,
    change: Callable[[list[Message]], list[Message]] = as_is,
) -> tuple[float, int]:
    """Of the prompt tokens of all turns but the first, those that the engine had cached; and the
    prompt tokens of the last turn, both in tokens of what was sent."""
    messages: list[Message] = [{"role": "system", "content": prose(seed, 6)}]
    cached = total = last = 0
    for turn in range(TURNS):
        found = [prose(seed + 10 * turn + number, 5) for number in (1, 2)]
        parts = [{"type": "text", "text": text} for text in (*found, f"Question {turn}: who?")]
        messages.append({"role": "user", "content": parts})
        body = {"model": "smollm2", "messages": change(messages), "max_tokens": 1}
        async with http.post(PATH, json=body, headers={HEADER: mode}) as answer:
            assert answer.status == 200, await answer.text()
            usage = json.loads(await answer.read())["usage"]
            assert ("form=compressed" in answer.headers.get(HEADER, "")) == (mode == "on")
        last = usage["prompt_tokens"]
        if turn:
            cached += usage["prompt_tokens_details"]["cached_tokens"]
            total += last
        messages.append({"role": "assistant", "content": f"It was number {turn}."})
    return cached / total, last


@pytest.mark.engine
@pytest.mark.timeout(300)
async def test_a_conversation_keeps_its_reuse(two_engine_urls: tuple[str, str]) -> None:
    """Of what is sent, at least nine tenths as much is found in the cache as without compression;
    compressing all of it anew each turn loses half of that."""
    async with (
        proxy_before(two_engine_urls, settings=SETTINGS) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        compression = server.proxy.compression
        assert compression is not None
        await until(lambda: compression.pool.up > 0, tries=3000)
        as_it_comes, whole = await cached_share(http, 1000, "off")
        naive, _ = await cached_share(http, 2000, "off", compressed_anew)
        ours, short = await cached_share(http, 3000, "on")
        print(f"share cached: off {as_it_comes:.3f}, anew {naive:.3f}, ours {ours:.3f}")
        assert short < 0.75 * whole
        assert ours >= 0.9 * as_it_comes
        assert naive < 0.65 * ours
        assert server.proxy.books.compression.removed_tokens["smollm2"] > 0
