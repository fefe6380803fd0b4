"""An engine that computes nothing: `python -m tests.benchmark.wire.stub MODEL.gguf PORTS`.

It serves several ports from one loop, says their URLs as one line of JSON, and ends with its
standard input. To prefold it is llama.cpp and tells the ids of its tokenizer; to vllm-router it is
a vLLM that renders; sglang-router asks it for its model. `POST /bench/scene` sets how chats are
answered, `GET /bench/counts` tells what was asked since. It looks at no chat: a search through
128 KiB would cost more than the answer.
"""

import asyncio
import gc
import json
import random
import re
import socket
import sys
import time
from collections import Counter
from functools import partial
from typing import Any, cast

import uvloop
from xxhash import xxh3_64_intdigest

from prefold.proxy.tokens.encoder import Encoder
from prefold.proxy.tokens.tokenizer import load_tokenizer
from tests.benchmark.wire.bodies import MODEL
from tests.benchmark.wire.pacer import Pacer, Planned
from tests.benchmark.wire.scene import (
    JSON_HEAD,
    LAST_CHUNK,
    STREAM_HEAD,
    Scene,
    http_chunk,
    json_response,
    last_events,
    scene_of,
    text_event,
    whole_answer,
)

CHAT, RENDER = b"/v1/chat/completions", b"/v1/chat/completions/render"
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
SLOTS, CONTEXT = 32, 65536
BYTES_PER_TOKEN = 4.4
"""Of the prose in `bodies`; only for /render, whose ids are made up."""
QUESTION_TOKENS = 40
DIGITS, IDS = 5, 100_000


class Engine:
    """What all connections share: the scene with its bytes, the counts, the tokenizer."""

    def __init__(self, model: str) -> None:
        loaded = load_tokenizer(model)
        assert loaded.template is not None
        self.pacer = Pacer()
        self.template = loaded.template
        self.encoder = Encoder(loaded.tokenizer, loaded.template, memo_bytes=0, inline_chars=2**20)
        self.probes: dict[bytes, Any] = {
            b"/health": {"status": "ok"},
            b"/v1/models": {
                "object": "list",
                "data": [{"id": MODEL, "object": "model", "owned_by": "llamacpp"}],
            },
            b"/props": {
                "model_path": model,
                "total_slots": SLOTS,
                "default_generation_settings": {"n_ctx": CONTEXT},
            },
            b"/get_model_info": {"model_path": MODEL, "is_generation": True},
            b"/model_info": {"model_path": MODEL, "is_generation": True},
            b"/get_server_info": {"model_path": MODEL, "dp_size": 1, "version": "stub"},
            b"/server_info": {"model_path": MODEL, "dp_size": 1, "version": "stub"},
        }
        self.event = http_chunk(text_event())
        draw = random.Random(0)
        self.ids = b",".join(b"%d" % draw.randrange(10_000, 49_000) for _ in range(2 * IDS))
        self.counts: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.play(Scene(chunks=0))

    def play(self, scene: Scene) -> None:
        self.scene = scene
        self.whole = whole_answer(scene)
        self.end = http_chunk(last_events(scene)) + LAST_CHUNK
        self.pace_ns, self.ttft_ns = round(scene.pace_ms * 1e6), round(scene.ttft_ms * 1e6)
        self.counts.clear()
        self.unknown.clear()
        self.started_ns = time.process_time_ns()

    def told(self) -> dict[str, Any]:
        cpu_us = (time.process_time_ns() - self.started_ns) / 1000
        return {"counts": self.counts, "unknown": self.unknown, "cpu_us": cpu_us}

    def render(self, body: bytes) -> bytes:
        """As vLLM answers, with about as many ids as the chat has, at next to no cost: they are cut
        out of a long list, at a place that the body's first half decides for most of them, and all
        of it for the question. So equal system prompts have equal ids, and others others."""
        count = round(len(body) / BYTES_PER_TOKEN)
        system = self._cut(xxh3_64_intdigest(body[: len(body) // 2]), count - QUESTION_TOKENS)
        question = self._cut(xxh3_64_intdigest(body), QUESTION_TOKENS)
        answer = b'{"request_id":"chatcmpl-1","model":"%s","token_ids":[%s,%s]}'
        answer %= MODEL.encode(), system, question
        return JSON_HEAD % (200, len(answer)) + answer

    def _cut(self, digest: int, count: int) -> bytes:
        start = digest % IDS * (DIGITS + 1)
        return self.ids[start : start + count * (DIGITS + 1) - 1]

    async def probe(self, path: bytes, body: bytes) -> bytes:
        """Everything that is no chat and no rendering."""
        match path:
            case b"/bench/scene":
                self.play(scene_of(body))
                return json_response({})
            case b"/bench/counts":
                return json_response(self.told())
            case b"/apply-template":
                messages = json.loads(body)["messages"]
                return json_response({"prompt": self.template.render(messages, None, {})})
            case b"/tokenize":
                ids = await self.encoder.encode_text(json.loads(body)["content"], add_bos=False)
                return json_response({"tokens": ids.tolist()})
        if path in self.probes:
            return json_response(self.probes[path])
        self.unknown[path.decode()] += 1
        return json_response({"error": {"message": "not served", "code": 404}}, 404)


class Connection(asyncio.Protocol):
    """One request after the other; bodies need a Content-Length."""

    def __init__(self, engine: Engine, port: int) -> None:
        self._engine = engine
        self._port = f"port {port}"
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle | Planned | None = None
        self._left = 0
        self._due_ns = 0
        self._task: asyncio.Task[None] | None = None
        self._head = b""
        self._body: list[bytes] = []
        self._missing = 0
        self._size = 0
        self._path = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        raw: socket.socket = transport.get_extra_info("socket")
        if not raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY):
            self._engine.counts["without TCP_NODELAY"] += 1

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._engine.counts["streams cut by the client"] += 1

    def data_received(self, data: bytes) -> None:
        if not self._missing:
            self._head += data
            head, found, data = self._head.partition(b"\r\n\r\n")
            if not found:
                return
            self._head = b""
            self._path = head.split(b" ", 2)[1].partition(b"?")[0]
            length = LENGTH.search(head)
            self._size = self._missing = int(length[1]) if length else 0
            if length is None and b"chunked" in head.lower():
                self._engine.counts["chunked requests"] += 1
                self._transport.close()
                return
        self._missing -= len(data)
        if self._path != CHAT:
            self._body.append(data)
        if not self._missing:
            self._answer()

    def _answer(self) -> None:
        engine, counts = self._engine, self._engine.counts
        if self._path == CHAT:
            counts["chats"] += 1
            counts["chat bytes"] += self._size
            counts[self._port] += 1
            self._chat()
            return
        body = b"".join(self._body)
        self._body.clear()
        if self._path == RENDER:
            counts["renderings"] += 1
            self._transport.write(engine.render(body))
        else:
            self._task = asyncio.ensure_future(self._probe(self._path, body))

    def _chat(self) -> None:
        engine = self._engine
        self._left = engine.scene.chunks
        if not self._left:
            self._transport.write(engine.whole)
        elif engine.ttft_ns:
            # As vLLM and SGLang do it; llama.cpp sends the head with the first event.
            self._transport.write(STREAM_HEAD)
            self._due_ns = time.monotonic_ns() + engine.ttft_ns
            self._timer = engine.pacer.call_at(self._due_ns, self._event)
        else:
            self._due_ns = time.monotonic_ns()
            self._event(STREAM_HEAD)

    def _event(self, before: bytes = b"") -> None:
        """Write one event, and plan the next; the last one brings the end with it."""
        engine = self._engine
        self._left -= 1
        if not self._left:
            self._timer = None
            self._transport.write(before + engine.event + engine.end)
            return
        self._transport.write(before + engine.event)
        if engine.pace_ns:
            self._due_ns += engine.pace_ns  # of the plan, so that streams keep their distance
            self._timer = engine.pacer.call_at(self._due_ns, self._event)
        else:
            self._timer = self._loop.call_soon(self._event)

    async def _probe(self, path: bytes, body: bytes) -> None:
        self._transport.write(await self._engine.probe(path, body))


async def main() -> None:
    engine, loop = Engine(sys.argv[1]), asyncio.get_running_loop()
    urls = []
    for number in range(int(sys.argv[2])):
        server = await loop.create_server(
            partial(Connection, engine, number), "127.0.0.1", 0, backlog=1024
        )
        urls.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    gc.freeze()
    gc.disable()  # nothing here makes cycles, and a pause would count as a peer's
    print(json.dumps(urls), flush=True)
    await loop.run_in_executor(None, sys.stdin.buffer.read)


if __name__ == "__main__":
    uvloop.run(main())
