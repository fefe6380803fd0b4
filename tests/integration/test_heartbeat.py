"""Signs of life before a stream begins, where they are wanted."""

from dataclasses import replace
from typing import Any

import aiohttp
import openai
import pytest
from openai import AsyncOpenAI

from prefold.proxy.settings import Timeouts
from tests.support.proxy import BASE, proxy_before, until
from tests.support.upstream import DONE, Step, chunk, delta, event, head, scripted, whole

BEATING = replace(BASE, timeouts=Timeouts(heartbeat_s=0.05))
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
# An `id`, after which the Python client takes a comment with a blank line for an event.
LATE: list[Any] = [
    Step.WAIT,
    head(),
    chunk(b"id: 7\n" + delta("Hi")),
    chunk(delta(finish="stop")),
    chunk(DONE),
    b"0\r\n\r\n",
]


async def test_a_stream_follows_its_heartbeats() -> None:
    """To the official client they are nothing at all."""
    async with (
        scripted(LATE) as upstream,
        proxy_before([upstream.url], settings=BEATING) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        async with http.post("/v1/chat/completions", json={**CHAT, "stream": True}) as answer:
            assert (await answer.content.readexactly(20)) == b": waiting\n: waiting\n"
            upstream.go_on()
            assert b"Hi" in await answer.read()
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as api:
            stream = await api.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}], stream=True
            )
            parts = [part.choices[0] async for part in stream]
    assert [part.delta.content for part in parts] == ["Hi", None]
    assert parts[-1].finish_reason == "stop"


@pytest.mark.parametrize(
    "script",
    [
        [Step.WAIT, Step.RESET],
        [Step.WAIT, *whole({"error": {"message": "queue full"}}, 503)],
        [Step.WAIT, *whole({"id": "c1", "choices": []})],
        [Step.WAIT, head(), chunk(event(object="error", message="x")), b"0\r\n\r\n"],
    ],
    ids=["reset", "503", "not a stream", "error event"],
)
async def test_what_fails_after_a_heartbeat_is_an_error_event(script: list[Any]) -> None:
    """The status is gone by then."""
    async with (
        scripted(script) as upstream,
        proxy_before([upstream.url], settings=BEATING) as server,
        AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as api,
    ):
        stream = await api.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        upstream.go_on()
        with pytest.raises(openai.APIError):
            async for _ in stream:
                pass
        [backend] = server.proxy.pool
        await until(lambda: backend.in_flight == 0)


async def test_a_client_that_leaves_between_beats_lets_the_backend_go() -> None:
    """And the lease."""
    async with (
        scripted([Step.WAIT, Step.CLOSE]) as upstream,
        proxy_before([upstream.url], settings=BEATING) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        answer = await http.post("/v1/chat/completions", json={**CHAT, "stream": True})
        await answer.content.readexactly(10)
        answer.close()
        await until(lambda: upstream.clients_gone == 1)
        [backend] = server.proxy.pool
        await until(lambda: backend.in_flight == 0)


async def test_what_is_not_streamed_has_no_heartbeat() -> None:
    """There is no place for one in a JSON body."""
    async with (
        scripted([Step.WAIT, *whole({"id": "c1", "choices": []})]) as upstream,
        proxy_before([upstream.url], settings=BEATING) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        posting = http.post("/v1/chat/completions", json=CHAT)
        upstream.go_on()
        async with posting as answer:
            assert (await answer.json())["id"] == "c1"
