"""What vLLM serves and the mocker's HTTP side does not, put before it: token ids of a chat, the
size of the cache, and its name. All else is passed on, answers as they come.

`python -m tests.benchmark.routing.vllm_face GGUF FOLDER` reads a line of JSON, a list of `Behind`,
and says the URLs that it serves as another one. It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from dataclasses import dataclass
from typing import Any

import aiohttp
import uvloop
from aiohttp import web

from prefold.proxy.tokens.encoder import Encoder
from prefold.proxy.tokens.tokenizer import load_tokenizer

BLOCK_TOKENS = 16
ROUTERS_OWN = (
    "include_reasoning",
    *("stream_reasoning", "separate_reasoning", "return_hidden_states", "no_stop_trim"),
)
"""Members that vllm-router and sglang-router add to each chat. vLLM takes or ignores them, the
mocker's HTTP side refuses the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """One engine."""

    url: str
    blocks: int


class Face:
    """Answers as vLLM does to what routers ask, with the same tokens as the engine behind."""

    def __init__(
        self, behind: Behind, session: aiohttp.ClientSession, encoder: Encoder, root: str
    ) -> None:
        self._behind = behind
        self._session = session
        self._encoder = encoder
        self._root = root

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**26)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/v1/chat/completions/render", self._render)
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        return app

    async def _models(self, request: web.Request) -> web.Response:
        async with self._session.get(f"{self._behind.url}/v1/models") as answer:
            listed = await answer.json()
        for card in listed["data"]:
            card |= {"owned_by": "vllm", "root": self._root}
        return web.json_response(listed)

    async def _metrics(self, request: web.Request) -> web.Response:
        labels = f'block_size="{BLOCK_TOKENS}",num_gpu_blocks="{self._behind.blocks}"'
        return web.Response(
            text=f"# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{{{labels}}} 1\n"
        )

    async def _tokenize(self, request: web.Request) -> web.Response:
        tokens = await self._ids(await request.json())
        return web.json_response({"count": len(tokens), "tokens": tokens})

    async def _render(self, request: web.Request) -> web.Response:
        chat = await request.json()
        ids = await self._ids(chat)
        return web.json_response(
            {"request_id": "chatcmpl-0", "model": chat["model"], "token_ids": ids}
        )

    async def _ids(self, chat: Any) -> list[int]:
        ids: list[int] = (await self._encoder.encode_chat(chat["messages"], None, {})).tolist()
        return ids

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        body, url = _plain(await request.read()), self._behind.url + request.path_qs
        headers = {"Content-Type": request.headers.get("Content-Type", "application/json")}
        async with self._session.request(
            request.method, url, data=body or None, headers=headers if body else None
        ) as answer:
            response = web.StreamResponse(
                status=answer.status, headers={"Content-Type": answer.headers["Content-Type"]}
            )
            if answer.content_length is not None:
                response.content_length = answer.content_length
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response


def _plain(body: bytes) -> bytes:
    """Without the members that would be refused."""
    if not any(name.encode() in body for name in ROUTERS_OWN):
        return body
    chat = json.loads(body)
    return json.dumps({name: chat[name] for name in chat if name not in ROUTERS_OWN}).encode()


async def main(gguf: str, folder: str) -> None:
    # Routers try gRPC on the same port first.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    loaded = load_tokenizer(gguf)
    encoder = Encoder(loaded.tokenizer, loaded.template, memo_bytes=0, inline_chars=2**24)
    behind = [Behind(**each) for each in json.loads(sys.stdin.readline())]
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
        urls = []
        for each in behind:
            app = Face(each, session, encoder, folder).app()
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            urls.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        print(json.dumps(urls), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:3]))
