"""How requests end that do not end by themselves: drain, lame duck, total time."""

import asyncio
import json
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import pytest

from prefold.measurement.record import RequestOutcome
from prefold.proxy.settings import Timeouts
from tests.support.proxy import BASE, proxy_before, until
from tests.support.upstream import Script, Step, chunk, delta, event, head, scripted

STREAM: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "hi"}],
    "stream": True,
}
BEGUN: Script = [head(), chunk(delta("Hi")), Step.WAIT, Step.CLOSE]
STATES: dict[str, tuple[dict[str, Any], Script]] = {
    "/v1/chat/completions": (STREAM, BEGUN),
    "/v1/responses": (
        {"model": "m", "input": "hi", "stream": True},
        [
            head(),
            chunk(event(type="response.output_text.delta", delta="Hi", sequence_number=3)),
            Step.WAIT,
            Step.CLOSE,
        ],
    ),
    "/v1/messages": (
        {"model": "m", "messages": [], "stream": True},
        [head(), chunk(event(type="content_block_delta", delta={})), Step.WAIT, Step.CLOSE],
    ),
}


@dataclass(slots=True)
class RawAnswer:
    """An answer of which every byte counts, also those before a connection that breaks."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    seen: bytes = b""

    async def until(self, text: bytes) -> None:
        while text not in self.seen:
            piece = await self.reader.read(65536)
            assert piece, "the connection ended"
            self.seen += piece

    async def rest(self) -> bytes:
        while piece := await self.reader.read(65536):
            self.seen += piece
        self.writer.close()
        return self.seen

    @property
    def whole(self) -> bool:
        return self.seen.endswith(b"\r\n0\r\n\r\n")


async def asked(url: str, path: str, body: dict[str, Any]) -> RawAnswer:
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    raw = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n"
    writer.write(head.encode() + raw)
    return RawAnswer(reader, writer)


@pytest.mark.parametrize("path", STATES)
async def test_a_stream_that_outlasts_the_drain_ends_as_an_error(path: str) -> None:
    """An error event in the protocol of the path, then an aborted body: never a short answer."""
    body, script = STATES[path]
    async with scripted(script) as upstream:
        async with proxy_before([upstream.url]) as server:
            answer = await asked(server.url, path, body)
            await answer.until(b"data: ")
        seen = await answer.rest()
        await until(lambda: upstream.clients_gone == 1)

    assert not answer.whole
    data = json.loads(seen.rpartition(b"data: ")[2].partition(b"\n")[0])
    if path == "/v1/responses":
        assert (data["type"], data["code"], data["sequence_number"]) == ("error", "cut_off", 4)
    elif path == "/v1/messages":
        assert (data["type"], data["error"]["type"]) == ("error", "api_error")
    else:
        assert data["error"]["code"] == "cut_off"


async def test_a_request_without_an_answer_yet_is_told_to_go_elsewhere() -> None:
    """503 with Retry-After, not a dropped connection."""
    async with scripted([Step.WAIT, Step.CLOSE]) as upstream, aiohttp.ClientSession() as http:
        async with proxy_before([upstream.url]) as server:
            waiting = asyncio.create_task(
                http.post(f"{server.url}/v1/chat/completions", json=STREAM)
            )
            await until(lambda: len(upstream.received) == 1)
        answer = await waiting
        told = await answer.json()

    assert (answer.status, told["error"]["code"]) == (503, "ending")
    assert 1 <= int(answer.headers["Retry-After"]) <= 60


async def test_a_stream_that_ends_within_the_drain_is_whole() -> None:
    """That is what the drain is for."""
    settings = replace(BASE, server=replace(BASE.server, drain_s=30.0))
    script: Script = [
        head(),
        chunk(delta("Hi")),
        Step.WAIT,
        chunk(delta(finish="stop")),
        b"0\r\n\r\n",
    ]
    async with scripted(script) as upstream:
        async with proxy_before([upstream.url], settings=settings) as server:
            answer = await asked(server.url, "/v1/chat/completions", STREAM)
            await answer.until(b"data: ")
            asyncio.get_running_loop().call_later(0.05, upstream.go_on)
        seen = await answer.rest()

    assert answer.whole
    assert b'"stop"' in seen


async def test_a_body_that_is_still_coming_when_the_drain_begins_is_read_to_its_end() -> None:
    """What was begun before is served, however slowly it comes."""
    settings = replace(BASE, server=replace(BASE.server, drain_s=30.0))
    script: Script = [head(), chunk(delta("Hi", finish="stop")), b"0\r\n\r\n"]
    raw = json.dumps(STREAM).encode()
    async with scripted(script) as upstream:
        async with proxy_before([upstream.url], settings=settings) as server:
            host, port = server.url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            start = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}"
            writer.write(start.encode() + b"\r\n\r\n" + raw[:10])
            answer = RawAnswer(reader, writer)
            asyncio.get_running_loop().call_later(0.1, writer.write, raw[10:])
            await asyncio.sleep(0.02)
        seen = await answer.rest()

    assert answer.whole
    assert b'"Hi"' in seen


async def test_requests_that_were_sent_ahead_are_answered_before_garbage_ends_it() -> None:
    """Three sound ones, then what is no HTTP: three answers, and the end."""
    async with scripted([b""]) as upstream, proxy_before([upstream.url]) as server:
        host, port = server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 3 + b"garbage\r\n\r\n")
        seen = await RawAnswer(reader, writer).rest()

    assert seen.count(b"HTTP/1.1 200 ") == 3


async def test_while_it_is_not_ready_any_more_it_still_serves() -> None:
    """Balancers need time to notice; what they send meanwhile is not lost."""
    script = [head(), chunk(delta("Hi", finish="stop")), b"0\r\n\r\n"]
    async with (
        scripted(script) as upstream,
        proxy_before([upstream.url]) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        server.proxy.lifecycle.draining = True
        async with http.get("/ready") as answer:
            assert answer.status == 503
        async with http.get("/health") as answer:
            assert answer.status == 200
        async with http.post("/v1/chat/completions", json=STREAM) as answer:
            assert b"Hi" in await answer.read()


@pytest.mark.parametrize("begun", [True, False])
async def test_a_request_may_not_take_longer_than_the_total_time(begun: bool) -> None:
    """504 before the answer began, an error event after it; the backend is let go."""
    settings = replace(BASE, timeouts=Timeouts(total_s=0.3))
    script: Script = BEGUN if begun else [Step.WAIT, Step.CLOSE]
    async with (
        scripted(script) as upstream,
        proxy_before([upstream.url], settings=settings) as server,
    ):
        answer = await asked(server.url, "/v1/chat/completions", STREAM)
        if begun:
            seen = await answer.rest()
            assert b'"cut_off"' in seen
            assert not answer.whole
        else:
            await answer.until(b'"upstream_timeout"')
            assert answer.seen.startswith(b"HTTP/1.1 504 ")
            answer.writer.close()
        await until(lambda: upstream.clients_gone == 1)
        [backend] = server.proxy.pool
        assert backend.in_flight == 0
        counted = server.proxy.metrics.exposition().decode()
    assert f'outcome="{RequestOutcome.UPSTREAM_FAILED}"' in counted
