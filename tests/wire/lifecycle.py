"""Scenarios of connections and processes: each plays one case and returns what went wrong."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from tests.support.proxy import until
from tests.support.upstream import DONE, Script, Step, chunk, delta, head, stream, whole
from tests.wire.fleet import CHAT, MODEL, fleet
from tests.wire.raw_client import BodyEnd, ask, post, read_answer

ANSWER = {"id": "w1", "choices": [{"index": 0, "message": {"role": "assistant", "content": "tea"}}]}
SOUND = stream(delta("Green tea"), delta(finish="stop"), DONE)


def body(*, streamed: bool, text: str = "hello") -> bytes:
    asked: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": text}]}
    if streamed:
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
    return json.dumps(asked).encode()


async def keep_alive_race(given: Mapping[str, Any]) -> list[str]:
    """The upstream closes each kept connection shortly after its answer, as the next request is
    on its way."""
    [answer] = whole(ANSWER)
    script: Script = [answer, Step.CLOSE]
    async with fleet(script) as running:
        running.upstreams[0].pause_s = given["closes_after_s"]
        statuses = []
        for _ in range(given["requests"]):
            asked = await ask(running.proxy.url, post(CHAT, body(streamed=False)))
            statuses.append(asked.status)
            await asyncio.sleep(given["closes_after_s"])
    failed = [status for status in statuses if status != 200]
    return [f"{len(failed)} of {len(statuses)} failed: {failed}"] if failed else []


async def client_leaves(given: Mapping[str, Any]) -> list[str]:
    """At one point of the exchange; the upstream's connection ends then, and nobody is struck."""
    begun: Script = [head(), chunk(delta("Green"))] if given["when"] == "in stream" else []
    async with fleet([*begun, Step.WAIT]) as running:
        upstream, parts = running.upstreams[0], urlsplit(running.proxy.url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(post(CHAT, body(streamed=given["stream"])))
        await until(lambda: len(upstream.received) == 1)
        if begun:
            await reader.readuntil(b"Green")
        writer.close()
        await until(lambda: upstream.clients_gone == 1)
        outcomes: Mapping[str, int] = {}
        for _ in range(100):
            if outcomes := await running.proxy.outcomes():
                break
            await asyncio.sleep(0.01)
        states = list((await running.proxy.states()).values())
        in_flight = await running.proxy.total("prefold_in_flight_requests")
    wrong = [] if outcomes == {"client_gone": 1} else [f"counted as {dict(outcomes)}"]
    wrong += [] if states == ["up"] else [f"breaker: {states}"]
    return [*wrong, *([] if in_flight == {"": 0} else [f"in flight: {dict(in_flight)}"])]


async def slow_reader(given: Mapping[str, Any]) -> list[str]:
    """A client that stops reading: the upstream's stream stops too, and memory stays flat."""
    piece = chunk(delta("x" * 2**16))
    script: Script = [head(), *[piece] * given["pieces"], chunk(DONE), b"0\r\n\r\n"]
    async with fleet(script) as running:
        running.upstreams[0].pause_s = 0
        parts = urlsplit(running.proxy.url)
        before = running.proxy.memory_bytes()
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=2**16)
        writer.write(post(CHAT, body(streamed=True)))
        await reader.readexactly(100)
        most = before
        for _ in range(given["looks"]):
            await asyncio.sleep(0.02)
            most = max(most, running.proxy.memory_bytes())
        writer.transport.abort()
        await until(lambda: running.upstreams[0].clients_gone == 1)
    grown = (most - before) / 2**20
    return [] if grown < given["most_mib"] else [f"memory grew by {grown:.1f} MiB"]


async def pipelined(given: Mapping[str, Any]) -> list[str]:
    """Several requests at once on one connection are answered in their order."""
    async with fleet(SOUND) as running:
        parts = urlsplit(running.proxy.url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(b"".join(post(CHAT, body(streamed=True)) for _ in range(given["requests"])))
        answers = [await read_answer(reader) for _ in range(given["requests"])]
        writer.close()
    return [
        f"{answer.status} {answer.end}"
        for answer in answers
        if answer.status != 200 or answer.end is not BodyEnd.WHOLE or b"[DONE]" not in answer.body
    ]


async def drain(given: Mapping[str, Any]) -> list[str]:
    """SIGTERM while a stream runs: not ready at once, still serving, then the stream is cut as any
    other one is, and the exit is a proper one."""
    server = {"port": 0, "admin_port": 0, "lame_duck_s": 0.5, "drain_s": 0.3}
    script: Script = [head(), chunk(delta("Green")), Step.WAIT]
    async with fleet(script, SOUND, settings={"server": server}) as running:
        for upstream in running.upstreams[1:]:
            upstream.scripts = [script]  # whichever is chosen
        asking = asyncio.ensure_future(ask(running.proxy.url, post(CHAT, body(streamed=True))))
        await until(lambda: sum(running.served()) == 1)
        running.proxy.process.send_signal(signal.SIGTERM)
        ready = 200
        for _ in range(40):
            ready = (await ask(running.proxy.url, post("/ready", b"", method="GET"))).status
            if ready != 200:
                break
            await asyncio.sleep(0.005)
        answer = await asking
        code = await running.proxy.process.wait()
    wrong = [] if ready == 503 else [f"/ready answers {ready}"]
    if answer.end is not BodyEnd.ABORTED or b'{"error":{' not in answer.body:
        wrong.append(f"the stream was {answer.end}: {answer.body[-120:]!r}")
    return wrong if code == 0 else [*wrong, f"exit code {code}"]
