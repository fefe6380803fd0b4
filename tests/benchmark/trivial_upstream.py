"""An upstream that costs next to nothing: it answers at once, with as many chunks as it is asked.

It looks like llama.cpp to prefold, and tells the same token ids, so that requests take the exact
path. `python trivial_upstream.py MODEL.gguf PACE_S` prints its address, and ends with its standard
input. A request's `max_tokens` is its number of chunks.
"""

import asyncio
import json
import re
import sys
from typing import Any, cast

import uvloop

from prefold.proxy.tokens.chat_template import ChatTemplate
from prefold.proxy.tokens.encoder import Encoder
from prefold.proxy.tokens.tokenizer import load_tokenizer

CHUNK = {
    "id": "chatcmpl-1",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "bench",
    "choices": [{"index": 0, "delta": {"content": " token"}, "finish_reason": None}],
}
EVENT = b"data: " + json.dumps(CHUNK).encode() + b"\n\n"
FINISH = EVENT.replace(b'"finish_reason": null', b'"finish_reason": "stop"') + b"data: [DONE]\n\n"
WHOLE = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "bench",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi"},
                "finish_reason": "stop",
            }
        ],
        # Nothing of cached tokens: what is wrong there costs the backend its mode.
        "usage": {"prompt_tokens": 100, "completion_tokens": 1, "total_tokens": 101},
    }
).encode()
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
CHUNKS = re.compile(rb'"max_tokens": ?(\d+)')


class Upstream(asyncio.Protocol):
    """One connection. `probes` are the answers to GET requests by path."""

    def __init__(
        self,
        probes: dict[str, Any],
        template: ChatTemplate,
        encoder: Encoder,
        pace_s: float,
    ) -> None:
        self._probes = probes
        self._template = template
        self._encoder = encoder
        self._pace_s = pace_s
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        size = int(length[1]) if length else 0
        if not found or len(rest) < size:
            return
        self._buffer = rest[size:]
        self._answer(head.split(b" ", 2)[1].decode(), rest[:size])

    def _answer(self, path: str, body: bytes) -> None:
        if path != "/v1/chat/completions":
            self._task = asyncio.ensure_future(self._answer_probe(path, body))
        elif b'"stream": true' in body or b'"stream":true' in body:
            chunks = CHUNKS.search(body)
            self._task = asyncio.ensure_future(self._stream(int(chunks[1]) if chunks else 1))
        else:
            self._write_json(WHOLE)

    async def _stream(self, chunks: int) -> None:
        self._transport.write(STREAM_HEAD)
        piece = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)
        for _ in range(chunks - 1):
            self._transport.write(piece)
            # A pause between chunks: each one is then a wake-up of its own, as tokens are.
            await asyncio.sleep(self._pace_s)
        self._transport.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(FINISH), FINISH))

    async def _answer_probe(self, path: str, body: bytes) -> None:
        answer = self._probes.get(path, {})
        if path == "/apply-template":
            answer = {"prompt": self._template.render(json.loads(body)["messages"], None, {})}
        elif path == "/tokenize":
            ids = await self._encoder.encode_text(json.loads(body)["content"], add_bos=False)
            answer = {"tokens": ids.tolist()}
        self._write_json(json.dumps(answer).encode())

    def _write_json(self, body: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self._transport.write(head % len(body) + body)


async def main() -> None:
    model, pace_s = sys.argv[1], float(sys.argv[2])
    loaded = load_tokenizer(model)
    encoder = Encoder(loaded.tokenizer, loaded.template, memo_bytes=2**20, inline_chars=2**20)
    probes = {
        "/v1/models": {"data": [{"id": "bench", "owned_by": "llamacpp"}]},
        "/props": {
            "model_path": model,
            "total_slots": 64,
            "default_generation_settings": {"n_ctx": 65536},
        },
    }
    loop = asyncio.get_running_loop()
    template = loaded.template
    assert template is not None
    server = await loop.create_server(
        lambda: Upstream(probes, template, encoder, pace_s), "127.0.0.1", 0
    )
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await loop.run_in_executor(None, sys.stdin.buffer.read)


if __name__ == "__main__":
    uvloop.run(main())
