"""A server that talks as vLLM does and tells what its prefix cache holds. No model behind it: it
tokenizes a chat, keeps its blocks, publishes what it kept, and reports what it found.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jinja2
import msgspec
import zmq.asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from aiohttp.typedefs import Handler

from tests.support.tiny_tokenizer import CHATML, tiny_bpe, write_folder

BLOCK = 8
BLOCKS = 512
MODEL = "m"
ADAPTER = "french"
END = (-1).to_bytes(8, "big", signed=True)


class TellingEngine:
    """Mutable."""

    def __init__(
        self, folder: Path, context: zmq.asyncio.Context, *, enabled: bool, rank: int = 0
    ) -> None:
        self.url = ""
        self._rank = rank
        self.held: dict[tuple[str, str, tuple[int, ...]], int] = {}
        """Blocks by adapter, salt and all tokens up to their end; their names are numbers."""
        self.cached: list[int] = []
        """Of each request, what it reported."""
        self.pub = context.socket(zmq.PUB)
        self._router = context.socket(zmq.ROUTER)
        for socket in (self.pub, self._router):
            socket.bind("tcp://127.0.0.1:*")
        self._batches: list[bytes] = []
        self._folder = folder
        self.enabled = enabled
        self.adapters = [ADAPTER]
        self.reports = True
        """Cached tokens, as vLLM with --enable-prompt-tokens-details."""
        self.strange = False
        """Its token ids, asked for, are others than those it uses."""
        self._tokenizer = tiny_bpe()
        made = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False)
        self._template = made.from_string(CHATML)

    @property
    def replay_endpoint(self) -> str:
        return str(self._router.getsockopt_string(zmq.LAST_ENDPOINT))

    def tokens(self, messages: Any) -> list[int]:
        text = self._template.render(messages=messages, add_generation_prompt=True)
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    async def compute(self, ids: list[int], *, adapter: str = "", salt: str = "") -> int:
        """Tokens that were cached; the rest is told."""
        found, new, parent = 0, [], None
        for end in range(BLOCK, len(ids) + 1, BLOCK):
            block = adapter, salt, tuple(ids[:end])
            if block in self.held:
                found = min(end, (len(ids) - 1) // BLOCK * BLOCK)
                parent = self.held[block]
            else:
                self.held[block] = len(self.held) + 1
                new.append(self.held[block])
        if new:
            start = len(ids) // BLOCK * BLOCK - len(new) * BLOCK
            keys = [[adapter] if adapter else [] for _ in new]
            if salt and not start:
                keys[0].append(salt)
            await self.publish(
                type="BlockStored",
                block_hashes=new,
                parent_block_hash=parent,
                token_ids=ids[start : start + len(new) * BLOCK],
                block_size=BLOCK,
                medium="GPU",
                lora_name=adapter or None,
                extra_keys=[key or None for key in keys],
            )
        return found

    async def reset(self) -> None:
        self.held.clear()
        await self.publish(type="AllBlocksCleared")

    async def publish(self, **event: Any) -> None:
        payload = msgspec.msgpack.encode([1e6 + len(self._batches), [event], self._rank])
        self._batches.append(payload)
        number = len(self._batches) - 1
        if not self.pub.closed:
            await self.pub.send_multipart([b"kv", number.to_bytes(8, "big"), payload])

    async def replays(self) -> None:
        """Never returns."""
        while True:
            client, empty, start = await self._router.recv_multipart()
            for number in range(int.from_bytes(start, "big"), len(self._batches)):
                frames = [b"", number.to_bytes(8, "big"), self._batches[number]]
                await self._router.send_multipart([client, empty, *frames])
            await self._router.send_multipart([client, empty, b"", END, b""])

    async def models(self, request: web.Request) -> web.Response:
        card = {"id": MODEL, "owned_by": "vllm", "root": str(self._folder)}
        adapters = [{**card, "id": name, "parent": MODEL} for name in self.adapters]
        return web.json_response({"data": [card, *adapters]})

    async def metrics(self, request: web.Request) -> web.Response:
        labels = f'num_gpu_blocks="{BLOCKS}",block_size="{BLOCK}"'
        return web.Response(text=f"vllm:cache_config_info{{{labels}}} 1.0\n")

    async def tokenize(self, request: web.Request) -> web.Response:
        ids = self.tokens((await request.json())["messages"])
        return web.json_response({"tokens": ids[1:] if self.strange else ids})

    async def sources(self, request: web.Request) -> web.Response:
        return web.json_response({"0": self.publisher()})

    def publisher(self) -> dict[str, Any]:
        def port(socket: zmq.asyncio.Socket) -> str:
            return socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2]

        return {
            "enable_kv_cache_events": self.enabled,
            "endpoint": f"tcp://*:{port(self.pub)}",
            "replay_endpoint": f"tcp://*:{port(self._router)}",
            "topic": "kv",
        }

    async def chat(self, request: web.Request) -> web.Response:
        body: Mapping[str, Any] = await request.json()
        ids = self.tokens(body["messages"])
        adapter = ADAPTER if body["model"] == ADAPTER else ""
        salt = body.get("cache_salt") or ""
        self.cached.append(await self.compute(ids, adapter=adapter, salt=salt))
        usage = {
            "prompt_tokens": len(ids),
            "completion_tokens": 1,
            "total_tokens": len(ids) + 1,
            "prompt_tokens_details": {"cached_tokens": self.cached[-1]} if self.reports else None,
        }
        message = {"role": "assistant", "content": "hello"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        made = {"id": "c1", "object": "chat.completion", "created": 1, "model": MODEL}
        return web.json_response({**made, "choices": [choice], "usage": usage})


@asynccontextmanager
async def telling_engine(folder: Path, *, enabled: bool = True) -> AsyncIterator[TellingEngine]:
    """On the loopback, with one block in its cache; its model's files go to `folder`. It says
    whether it publishes."""
    write_folder(folder, tiny_bpe())
    context = zmq.asyncio.Context()
    engine = TellingEngine(folder, context, enabled=enabled)
    routes = {
        "/health": _healthy,
        "/metrics": engine.metrics,
        "/kv_event_sources": engine.sources,
    }
    async with served(engine, context, routes):
        yield engine


@asynccontextmanager
async def served(
    engine: TellingEngine, context: zmq.asyncio.Context, routes: Mapping[str, Handler]
) -> AsyncIterator[None]:
    """With what engines of every kind answer, and `routes` for GET besides; `context` is destroyed
    at the end."""
    await engine.compute(list(range(BLOCK)))
    replays = asyncio.create_task(engine.replays(), name="replays")
    app = web.Application()
    app.router.add_get("/v1/models", engine.models)
    for path, handler in routes.items():
        app.router.add_get(path, handler)
    app.router.add_post("/tokenize", engine.tokenize)
    app.router.add_post("/v1/chat/completions", engine.chat)
    try:
        async with TestServer(app) as server:
            engine.url = str(server.make_url("")).rstrip("/")
            yield
    finally:
        replays.cancel()
        await asyncio.gather(replays, return_exceptions=True)
        context.destroy(linger=0)


async def _healthy(request: web.Request) -> web.Response:
    return web.Response()
