"""A scripted LLM server as a process of its own: it streams what `script` says, at that pace.

    python -m tests.chaos.llm_server --port PORT --model NAME [--model NAME]

Prints its address; ends with its standard input.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

import msgspec
from aiohttp import web

from tests.chaos.script import Wanted, text, usage, words


class _Body(msgspec.Struct):
    model: str = "m"
    stream: bool = False
    chaos: Wanted = Wanted()


async def completion(request: web.Request) -> web.StreamResponse:
    body = msgspec.json.decode(await request.read(), type=_Body)
    wanted = body.chaos
    if wanted.status != 200:
        error = {"message": "As asked.", "type": "server_error", "param": None, "code": "asked"}
        return web.json_response({"error": error}, status=wanted.status)
    if body.stream:
        return await _stream(request, body)
    await asyncio.sleep(wanted.tokens * wanted.pace_ms / 1000)
    message = {"role": "assistant", "content": text(wanted)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return web.json_response(
        {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": body.model,
            "choices": [choice],
            "usage": usage(wanted),
        }
    )


async def _stream(request: web.Request, body: _Body) -> web.StreamResponse:
    wanted = body.chaos
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(_event(body, {"role": "assistant", "content": ""}))
    for word in words(wanted):
        await response.write(_event(body, {"content": word}))
        await asyncio.sleep(wanted.pace_ms / 1000)
    await response.write(_event(body, {}, finish="stop", usage=usage(wanted)))
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


def _event(body: _Body, delta: dict[str, str], finish: str | None = None, **more: Any) -> bytes:
    event = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": body.model,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        **more,
    }
    return b"data: " + json.dumps(event).encode() + b"\n\n"


async def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--port", type=int, default=0)
    arguments.add_argument("--model", action="append", required=True)
    options = arguments.parse_args()
    cards = [{"id": name, "object": "model", "owned_by": "chaos"} for name in options.model]

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": cards})

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/chat/completions", completion)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", options.port, reuse_address=True).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
