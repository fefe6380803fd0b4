"""The upstream of a campaign: it answers probes as an engine does, and requests as `answers` says.

It runs in the driver's own loop, so that the driver knows what it was asked and what it said.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

from prefold.proxy.tokens.chat_template import ChatTemplate
from prefold.proxy.tokens.encoder import Encoder
from tests.fuzz.answers import PAUSE_S, Answer, Step, answer

LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
CHUNKED = re.compile(rb"\r\ntransfer-encoding: chunked", re.IGNORECASE)
NUMBER = re.compile(rb"\r\nx-fuzz: (\d+)", re.IGNORECASE)
STREAMED = re.compile(rb'"stream"\s*:\s*true')
USAGE = re.compile(rb'"include_usage"\s*:\s*true')


class Engine:
    """What all connections share. Mutable: what was asked and said."""

    def __init__(self, seed: int, template: ChatTemplate, encoder: Encoder) -> None:
        self._seed = seed
        self._template = template
        self._encoder = encoder
        self.asked: Counter[int] = Counter()
        """How often each number came, attempts counted."""
        self.said: dict[int, Answer] = {}
        """The last answer to each number; the driver takes it out."""
        self.kinds: Counter[str] = Counter()
        self.hidden = 0
        """Requests that stood inside another one's body."""

    def answer(self, number: int, path: str, body: bytes) -> Answer:
        streamed = STREAMED.search(body) is not None
        usage = USAGE.search(body) is not None
        made = answer(self._seed, number, path, streamed, usage)
        self.asked[number] += 1
        self.said[number] = made
        self.kinds[made.kind] += 1
        return made

    async def probe(self, path: str, body: bytes) -> bytes:
        value: Any = {}
        if path == "/v1/models":
            value = {"data": [{"id": "m", "owned_by": "llamacpp"}]}
        elif path == "/props":
            settings = {"n_ctx": 65536}
            value = {"total_slots": 64, "default_generation_settings": settings}
        elif path == "/apply-template":
            value = {"prompt": self._template.render(json.loads(body)["messages"], None, {})}
        elif path == "/tokenize":
            value = {"tokens": await self._tokens(json.loads(body))}
        return json.dumps(value).encode()

    async def _tokens(self, asked: dict[str, Any]) -> list[int]:
        """llama.cpp gives a text, vLLM the messages."""
        if "content" in asked:
            ids = await self._encoder.encode_text(asked["content"], add_bos=False)
        else:
            ids = await self._encoder.encode_chat(asked["messages"], None, {})
        return [int(token) for token in ids]


class Connection(asyncio.Protocol):
    """One connection of the proxy's client; requests come one after the other."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._buffer = b""
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def connection_lost(self, error: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._task is None or self._task.done():
            self._next()

    def _next(self) -> None:
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        body, size = _body(head, rest)
        if body is None:
            return
        self._buffer = rest[size:]
        path = head.split(b" ", 2)[1].decode("latin-1")
        number = NUMBER.search(head)
        if path == "/hidden":
            self._engine.hidden += 1
        if number is None:
            self._task = asyncio.ensure_future(self._answer_probe(path, body))
        else:
            made = self._engine.answer(int(number[1]), path.partition("?")[0], body)
            if all(isinstance(step, bytes) for step in made.steps):
                self._transport.write(b"".join(cast(tuple[bytes, ...], made.steps)))
            else:
                self._task = asyncio.ensure_future(self._play(made))

    async def _answer_probe(self, path: str, body: bytes) -> None:
        answered = await self._engine.probe(path, body)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self._transport.write(head % len(answered) + answered)

    async def _play(self, made: Answer) -> None:
        for step in made.steps:
            if isinstance(step, bytes):
                self._transport.write(step)
            elif step is Step.PAUSE:
                await asyncio.sleep(PAUSE_S)
            elif step is Step.CLOSE:
                self._transport.close()
            elif step is Step.RESET:
                self._transport.abort()
            else:
                await asyncio.Event().wait()  # until connection_lost


def _body(head: bytes, rest: bytes) -> tuple[bytes | None, int]:
    """The body if it is whole, and its length on the wire."""
    if CHUNKED.search(head):
        end = rest.find(b"0\r\n\r\n")  # good enough: bodies here are JSON or rejected before
        return (rest[:end], end + 5) if end >= 0 else (None, 0)
    length = LENGTH.search(head)
    size = int(length[1]) if length else 0
    return (rest[:size], size) if len(rest) >= size else (None, 0)


async def listen(engine: Engine) -> tuple[asyncio.Server, str]:
    make: Callable[[], Connection] = lambda: Connection(engine)  # noqa: E731
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
