"""A scripted LLM server on a real socket: it sends the bytes it is told to, then ends as told.

It answers the probes of an OpenAI-compatible server (GET /v1/models), counts what it was asked, and
notices when its client leaves.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Step(Enum):
    """What a script can do besides sending bytes."""

    WAIT = "wait for the test to call `go_on`"
    CLOSE = "close the connection"
    RESET = "reset the connection"


Script = Sequence[bytes | Step]


def head(status: int = 200, kind: str = "text/event-stream", *extra: str) -> bytes:
    """A response head with a chunked body."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", "Transfer-Encoding: chunked", *extra]
    return "\r\n".join([*lines, "", ""]).encode()


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


END = b"0\r\n\r\n"
STORED = ("/v1/responses/", "/v1/files")
"""Paths whose GET is no probe."""


def event(**members: Any) -> bytes:
    return b"data: " + json.dumps(members).encode() + b"\n\n"


def delta(content: str | None = None, finish: str | None = None, **more: Any) -> bytes:
    """One chat completion chunk."""
    made = {"content": content} if content is not None else {}
    choice = {"index": 0, "delta": {**made, **more}, "finish_reason": finish}
    return event(id="c1", object="chat.completion.chunk", created=1, model="m", choices=[choice])


DONE = b"data: [DONE]\n\n"


def stream(*events: bytes) -> list[bytes | Step]:
    """A whole, sound stream with one write for each event."""
    return [head(), *(chunk(event) for event in events), END]


def whole(value: Any, status: int = 200, *extra: str) -> list[bytes | Step]:
    """A JSON answer that is not streamed."""
    body = json.dumps(value).encode()
    lines = [f"HTTP/1.1 {status} X", "Content-Type: application/json", *extra]
    lines.append(f"Content-Length: {len(body)}")
    return ["\r\n".join([*lines, "", ""]).encode() + body]


@dataclass(slots=True)
class Received:
    """One request that was not a probe."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    head: bytes = b""


@dataclass(slots=True)
class ScriptedUpstream:
    """`scripts` are played one for each request, the last one again and again: with an empty
    `received` it starts anew, and upstreams that share one list share the turn. `pause_s` follows
    each write, so that it is a read of its own, mostly."""

    scripts: list[Script]
    model: str = "m"
    port: int = 0
    received: list[Received] = field(default_factory=list)
    clients_gone: int = 0
    pause_s: float = 0.005
    _go: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def go_on(self) -> None:
        self._go.set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read_request(reader)) is not None:
                if request.method == "GET" and not request.path.startswith(STORED):
                    card = {"id": self.model, "object": "model", "owned_by": "test"}
                    [answer] = whole({"object": "list", "data": [card]})
                    assert isinstance(answer, bytes)
                    writer.write(answer)
                    continue
                script = self.scripts[min(len(self.received), len(self.scripts) - 1)]
                self.received.append(request)
                if not await self._play(script, reader, writer):
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            self.clients_gone += 1
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            writer.close()

    async def _play(
        self, script: Script, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        for step in script:
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
                await asyncio.sleep(self.pause_s)
            elif step is Step.WAIT:
                if not await self._waited(reader):
                    self.clients_gone += 1
                    return False
            else:
                if step is Step.RESET:
                    writer.transport.abort()
                return False
        return True

    async def _waited(self, reader: asyncio.StreamReader) -> bool:
        """False if the client left before `go_on`."""
        go = asyncio.ensure_future(self._go.wait())
        gone = asyncio.ensure_future(reader.read(1))
        done, pending = await asyncio.wait((go, gone), return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        return go in done


async def _read_request(reader: asyncio.StreamReader) -> Received | None:
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = raw.decode("latin-1").strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines)
    }
    if headers.get("transfer-encoding") == "chunked":
        body = await _read_chunks(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, path, headers, body, raw)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    pieces = []
    while size := int(await reader.readline(), 16):
        pieces.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(pieces)


@asynccontextmanager
async def scripted(*scripts: Script, model: str = "m") -> AsyncIterator[ScriptedUpstream]:
    async with listening(ScriptedUpstream(list(scripts), model=model)) as upstream:
        yield upstream


@asynccontextmanager
async def listening(upstream: ScriptedUpstream) -> AsyncIterator[ScriptedUpstream]:
    server = await asyncio.start_server(upstream.handle, "127.0.0.1", 0, limit=2**20)
    upstream.port = server.sockets[0].getsockname()[1]
    try:
        yield upstream
    finally:
        upstream.go_on()
        server.close()
