"""What a request waits for documents that it holds: compressed here, by another proxy, or before.

    python -m tests.benchmark.bench_shared_segments [--requests 20]

Two proxies with `lexical` share a Redis, all on this machine; the upstream answers at once.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

import aiohttp

from prefold.proxy.compression.switch import HEADER
from prefold.proxy.serve import Running
from prefold.proxy.settings import Compression
from tests.support.prose import prose
from tests.support.proxy import proxy_before, until
from tests.support.redis_server import redis_server
from tests.support.replica_pair import shared
from tests.support.upstream import scripted, whole

ANSWER = whole({"id": "a", "choices": [{"message": {"role": "assistant", "content": "Yes."}}]})
DOCUMENTS, SENTENCES = 4, 150


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Running, Running]]:
    with tempfile.TemporaryDirectory() as folder, redis_server(Path(folder)) as redis:
        settings = replace(shared(redis), compression=Compression(mode="on", deadline_s=30.0))
        async with scripted(ANSWER) as upstream, AsyncExitStack() as stack:
            upstream.pause_s = 0.0
            one, two = [
                await stack.enter_async_context(proxy_before([upstream.url], settings=settings))
                for _ in range(2)
            ]
            for proxy in (one, two):
                await until(lambda proxy=proxy: _ready(proxy), tries=3000)
            yield one, two


def _ready(proxy: Running) -> bool:
    parts = proxy.proxy.compression
    assert parts is not None
    assert parts.shared is not None
    return parts.pool.up > 0 and parts.shared.breaker.closed


async def seconds(http: aiohttp.ClientSession, proxy: Running, documents: list[str]) -> float:
    """Of a whole request."""
    parts = [{"type": "text", "text": text} for text in (*documents, "What did he count?")]
    body = {"model": "m", "messages": [{"role": "user", "content": parts}]}
    begun = time.perf_counter()
    async with http.post(f"{proxy.url}/v1/chat/completions", json=body) as answer:
        await answer.read()
        assert "form=compressed" in answer.headers[HEADER]
    return time.perf_counter() - begun


async def measure(requests: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"compressed here": [], "by another one": [], "before": []}
    async with pair() as (one, two), aiohttp.ClientSession() as http:
        other = one.proxy.compression
        assert other is not None
        assert other.shared is not None
        counts = other.shared.counts
        for number in range(requests):
            documents = [prose(number * DOCUMENTS + n, SENTENCES) for n in range(DOCUMENTS)]
            for proxy, times in zip((one, two, two), found.values(), strict=True):
                times.append(await seconds(http, proxy, documents))
                await until(lambda number=number: counts.written == DOCUMENTS * (number + 1))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=20)
    words = len(prose(0, SENTENCES).split())
    print(f"{DOCUMENTS} documents of {words:,} words; whole request, p50")
    for name, times in asyncio.run(measure(parser.parse_args().requests)).items():
        print(f"{name:16} {median(times) * 1000:7.1f} ms")


if __name__ == "__main__":
    main()
