"""A server that talks as vLLM does with two data-parallel ranks: one URL, and behind it engines
with a cache, a load and a stream of KV events each. A request goes to the rank that its header
names, else to each in turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import zmq.asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from prefold.proxy.ranks import HEADER
from tests.support.telling_engine import BLOCK, BLOCKS, TellingEngine
from tests.support.tiny_tokenizer import tiny_bpe, write_folder

RANKS = 2


class RankedEngine:
    """Mutable."""

    def __init__(self, folder: Path, context: zmq.asyncio.Context) -> None:
        self.url = ""
        self.ranks = [
            TellingEngine(folder, context, enabled=True, rank=rank) for rank in range(RANKS)
        ]
        self.went: list[tuple[str | None, int]] = []
        """Of each request, the header and the rank."""
        self.running = [0] * RANKS
        """What its metrics say."""

    async def metrics(self, request: web.Request) -> web.Response:
        """num_gpu_blocks is the sum over the ranks, told for each."""
        lines = []
        for rank in range(RANKS):
            size = f'num_gpu_blocks="{BLOCKS * RANKS}",block_size="{BLOCK}"'
            lines.append(f'vllm:num_requests_running{{engine="{rank}"}} {self.running[rank]}')
            lines.append(f'vllm:cache_config_info{{engine="{rank}",{size}}} 1.0')
        return web.Response(text="\n".join(lines) + "\n")

    async def sources(self, request: web.Request) -> web.Response:
        told = {str(rank): engine.publisher() for rank, engine in enumerate(self.ranks)}
        return web.json_response(told)

    async def chat(self, request: web.Request) -> web.Response:
        header = request.headers.get(HEADER)
        rank = int(header) if header is not None else len(self.went) % RANKS
        self.went.append((header, rank))
        if rank >= RANKS:
            error = {"message": "data_parallel_rank is out of range", "code": 400}
            return web.json_response({"error": error}, status=400)
        return await self.ranks[rank].chat(request)


@asynccontextmanager
async def ranked_engine(folder: Path) -> AsyncIterator[RankedEngine]:
    """On the loopback, with one block in the cache of each rank; its model's files go to
    `folder`."""
    write_folder(folder, tiny_bpe())
    context = zmq.asyncio.Context()
    engine = RankedEngine(folder, context)
    for rank in engine.ranks:
        await rank.compute(list(range(BLOCK)))
    replays = [asyncio.create_task(rank.replays(), name="replays") for rank in engine.ranks]
    app = web.Application()
    app.router.add_get("/health", _healthy)
    app.router.add_get("/v1/models", engine.ranks[0].models)
    app.router.add_get("/metrics", engine.metrics)
    app.router.add_get("/kv_event_sources", engine.sources)
    app.router.add_post("/tokenize", engine.ranks[0].tokenize)
    app.router.add_post("/v1/chat/completions", engine.chat)
    try:
        async with TestServer(app) as server:
            engine.url = str(server.make_url("")).rstrip("/")
            yield engine
    finally:
        for task in replays:
            task.cancel()
        await asyncio.gather(*replays, return_exceptions=True)
        context.destroy(linger=0)


async def _healthy(request: web.Request) -> web.Response:
    return web.Response()
