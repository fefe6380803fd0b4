"""Simulated LLM servers with an exact prefix cache each: `python -m tests.support.block_engines`.

They answer as vLLM does, its /tokenize among it, so that a proxy is exact about them. A cache keeps
full blocks in one LRU, tails before heads; prefill is done for one request at a time, at a given
rate. Several servers in one process, on ports of their own. Ends with its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import uvloop
from aiohttp import web

from tests.support.tiny_tokenizer import CHATML, tiny_bpe, write_folder

MODEL = "m"
BLOCK = 16


@dataclass(slots=True)
class BlockEngine:
    """Mutable. `blocks` is the room of its cache; `rate` in tokens per second of prefill."""

    blocks: int
    rate: float
    folder: Path
    """Of its model."""
    held: OrderedDict[int, None] = field(default_factory=OrderedDict)
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)
    made: int = 0

    def compute(self, prompt: list[int]) -> int:
        """Tokens of the prompt that were cached; all of it is, afterwards."""
        keys = _keys(prompt)
        cached = 0
        for key in keys:
            if key not in self.held:
                break
            cached += BLOCK
        for key in reversed(keys):
            self.held[key] = None
            self.held.move_to_end(key)
        while len(self.held) > self.blocks:
            self.held.popitem(last=False)
        return min(cached, (len(prompt) - 1) // BLOCK * BLOCK)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        prompt = _tokens((await request.json())["messages"])
        async with self.busy:
            cached = self.compute(prompt)
            await asyncio.sleep((len(prompt) - cached) / self.rate)
        usage = {
            "prompt_tokens": len(prompt),
            "completion_tokens": 1,
            "total_tokens": len(prompt) + 1,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        events = [_chunk({"content": "ok"}, None), _chunk({}, "stop"), {"choices": [], **_USAGE}]
        events[-1]["usage"] = usage
        body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
        await answer.write(body + b"data: [DONE]\n\n")
        return answer

    async def models(self, request: web.Request) -> web.Response:
        card = {"id": MODEL, "object": "model", "owned_by": "vllm", "root": str(self.folder)}
        return web.json_response({"object": "list", "data": [card]})

    async def metrics(self, request: web.Request) -> web.Response:
        labels = f'num_gpu_blocks="{self.blocks}",block_size="{BLOCK}"'
        return web.Response(text=f"vllm:cache_config_info{{{labels}}} 1.0\n")

    async def response(self, request: web.Request) -> web.Response:
        self.made += 1
        made = {"id": f"resp_{id(self):x}_{self.made}", "object": "response", "output": []}
        return web.json_response({**made, "status": "completed"})

    async def stored(self, request: web.Request) -> web.Response:
        mine = request.match_info["id"].startswith(f"resp_{id(self):x}_")
        return web.json_response({"id": request.match_info["id"]}, status=200 if mine else 404)


_USAGE: dict[str, Any] = {"id": "c", "object": "chat.completion.chunk", "model": MODEL}


def _chunk(delta: dict[str, str], finish: str | None) -> dict[str, Any]:
    return {**_USAGE, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


_TEMPLATE = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(CHATML)
_TOKENIZER = tiny_bpe()


def _tokens(messages: list[dict[str, str]]) -> list[int]:
    text = _TEMPLATE.render(messages=messages, add_generation_prompt=True)
    ids: list[int] = _TOKENIZER.encode(text, add_special_tokens=False).ids
    return ids


def _keys(prompt: list[int]) -> list[int]:
    """Of each full block, with all before it."""
    keys, before = [], 0
    for end in range(BLOCK, len(prompt) + 1, BLOCK):
        before = hash((before, *prompt[end - BLOCK : end]))
        keys.append(before)
    return keys


async def _tokenize(request: web.Request) -> web.Response:
    return web.json_response({"tokens": _tokens((await request.json())["messages"])})


async def _healthy(request: web.Request) -> web.Response:
    return web.Response()


async def _serve(folder: Path, count: int, blocks: int, rate: float) -> None:
    write_folder(folder, _TOKENIZER)
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    threading.Thread(
        target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(ended.set)), daemon=True
    ).start()
    async with contextlib.AsyncExitStack() as stack:
        ports = []
        for _ in range(count):
            engine = BlockEngine(blocks, rate, folder)
            app = web.Application(client_max_size=2**24)
            app.router.add_get("/health", _healthy)
            app.router.add_get("/metrics", engine.metrics)
            app.router.add_get("/v1/models", engine.models)
            app.router.add_post("/tokenize", _tokenize)
            app.router.add_post("/v1/chat/completions", engine.chat)
            app.router.add_post("/v1/responses", engine.response)
            app.router.add_get("/v1/responses/{id}", engine.stored)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            ports.append(runner.addresses[0][1])
        print(json.dumps(ports), flush=True)
        await ended.wait()


@asynccontextmanager
async def block_engines(
    folder: Path, count: int, *, blocks: int, rate: float
) -> AsyncIterator[list[str]]:
    """Their URLs. Their model's files go to `folder`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.block_engines", str(folder)),
        *(str(count), str(blocks), str(rate)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield [f"http://127.0.0.1:{port}" for port in json.loads(await process.stdout.readline())]
    finally:
        process.stdin.close()
        await process.wait()


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
