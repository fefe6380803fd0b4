"""TensorRT-LLM through the whole proxy, on a server that answers as its source says: routed by
bytes, corrected by what it reports, and never asked what others would miss."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from prefold.backends.backend import Mode
from prefold.proxy.serve import running
from prefold.proxy.settings import Backend, Key
from tests.support.proxy import BASE
from tests.support.replies import fixture

MODEL = fixture("tensorrt_llm")["/v1/models"]["data"][0]["id"]
KNOWN = {"model", "messages", "stream", "stream_options", "max_tokens"}
"""Of ChatCompletionRequest's members, those that are sent here: it forbids any that it lacks."""


class Server:
    """Mutable. Reports a cache of whole requests: the second time, all but the last block."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        self.bodies: list[dict[str, Any]] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        if request.path != "/v1/chat/completions":
            reply = fixture("tensorrt_llm").get(request.path)
            return web.Response(status=404) if reply is None else web.json_response(reply)
        body = await request.json()
        if unknown := body.keys() - KNOWN:
            return web.json_response({"error": f"extra_forbidden {unknown}"}, status=400)
        cached = 96 if any(body["messages"] == one["messages"] for one in self.bodies) else 0
        self.bodies.append(body)
        usage = {
            "prompt_tokens": 100,
            "total_tokens": 101,
            "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        made = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
        delta = {
            "index": 0,
            "delta": {"role": "assistant", "content": "a"},
            "finish_reason": "stop",
        }
        events = [{**made, "choices": [delta]}]
        if (body.get("stream_options") or {}).get("include_usage"):
            events.append({**made, "choices": [], "usage": usage})
        # A blank before the line break, as it sends.
        text = "".join(f"data: {json.dumps(event)} \n\n" for event in events)
        return web.Response(text=text + "data: [DONE]\n\n", content_type="text/event-stream")


@asynccontextmanager
async def trtllm() -> AsyncIterator[Server]:
    made = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    async with TestServer(app) as server:
        made.url = str(server.make_url("")).rstrip("/")
        yield made


async def test_it_is_served_by_bytes_and_believed_by_its_reports() -> None:
    """Usage is asked for and stripped again; a salt, which it would refuse, is not sent."""
    key = Key(tenant="t", sha256=sha256(b"pf-k").hexdigest())
    async with trtllm() as engine:
        made = dataclasses.replace(BASE, backends=(Backend(name="b", url=engine.url),), keys=(key,))
        async with running(made) as server, aiohttp.ClientSession(server.url) as http:
            [backend] = server.proxy.pool
            await server.proxy.monitor.probe(backend)
            assert backend.engine is not None
            assert (backend.engine.name, backend.mode) == ("tensorrt-llm", Mode.APPROXIMATE)
            assert "how this kind of engine prepares chats is not known" in backend.mode_reason
            body = {
                "model": MODEL,
                "messages": [{"role": "user", "content": "hello " * 60}],
                "stream": True,
            }
            for _ in range(2):
                headers = {"Authorization": "Bearer pf-k"}
                async with http.post("/v1/chat/completions", json=body, headers=headers) as answer:
                    assert answer.status == 200
                    text = await answer.text()
                assert "[DONE]" in text
                assert "usage" not in text
            exposed = server.proxy.metrics.exposition().decode()
    saved = f'prefold_saved_prefill_tokens_total{{backend="b",model="{MODEL}"}} 96.0'
    assert saved in exposed
    assert not {"/metrics", "/kv_cache_events", "/health_generate"} & set(engine.asked)
