"""Documents in an order that shares most, through the real proxy: what a backend gets, what a
client is told, what an engine then reports, and that several workers agree."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from prefold.measurement.report import report
from prefold.proxy.settings import Documents, Model, Timeouts
from tests.support.proxy import BASE, proxy_before
from tests.support.upstream import DONE, Script, Step, chunk, delta, head, scripted, stream, whole
from tests.support.workers import Connection, workers
from tests.wire.raw_client import post

HEADER = "X-Prefold-Documents"
ANSWER = whole({"id": "c1", "choices": [], "usage": {"prompt_tokens": 1}})
SETTINGS = replace(BASE, documents=Documents(by_header=True))
PATH = "/v1/chat/completions"


def passage(number: int, words: int = 30) -> str:
    return f"<document>Tea number {number}. {'It is green. ' * words}</document>"


def chat(*numbers: int, model: str = "m", **more: Any) -> dict[str, Any]:
    text = "\n".join([*map(passage, numbers), "Which is best?"])
    messages = [
        {"role": "system", "content": "You answer from documents."},
        {"role": "user", "content": text},
    ]
    return {"model": model, "messages": messages, **more}


async def ask(
    http: aiohttp.ClientSession, body: dict[str, Any], **headers: str
) -> tuple[str | None, dict[str, Any]]:
    async with http.post(PATH, json=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        return answer.headers.get(HEADER), await answer.json()


async def test_a_model_that_is_set_so_has_its_documents_ordered() -> None:
    """The backend gets the order, the client is told it, the report counts it; the rest of the
    body is the client's."""
    async with (
        scripted(ANSWER) as upstream,
        proxy_before(
            [upstream.url], models={"m": Model(documents=("delimited",), aliases=("alias",))}
        ) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        assert (await ask(http, chat(1, 2, 3)))[0] is None
        told, _ = await ask(http, chat(4, 3, 2, 1, temperature=0.5), **{HEADER: "none"})
        assert told == "messages[1]=3,2,1,0"
        told, _ = await ask(http, chat(3, 1, 2, model="alias"))
        assert told == "messages[1]=1,2,0"

        sent = [json.loads(request.body) for request in upstream.received]
        assert sent == [chat(1, 2, 3), chat(1, 2, 3, 4, temperature=0.5), chat(1, 2, 3)]
        assert HEADER.lower() not in upstream.received[1].headers
        assert report(server.proxy.books)["total"]["documents_moved"] == 7
        exposition = server.proxy.metrics.exposition().decode()
        assert 'prefold_documents_moved_total{model="m"} 7.0' in exposition


async def test_a_request_may_ask_for_it() -> None:
    """By the marks it names; else its bytes go out as they came, and an unknown mark is a 400."""
    async with (
        scripted(ANSWER) as upstream,
        proxy_before([upstream.url], settings=SETTINGS) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        for asked in ({}, {HEADER: "parts"}, {HEADER: "none"}, {HEADER: "delimited"}):
            assert (await ask(http, chat(1, 2), **asked))[0] is None
        assert (await ask(http, chat(2, 1)))[0] is None
        assert (await ask(http, chat(2, 1), **{HEADER: "delimited"}))[0] == "messages[1]=1,0"
        assert [json.loads(request.body) for request in upstream.received][-2:] == [
            chat(2, 1),
            chat(1, 2),
        ]
        async with http.post(PATH, json=chat(1), headers={HEADER: "all"}) as answer:
            assert answer.status == 400
            assert (await answer.json())["error"]["type"] == "invalid_request_error"


async def test_a_heartbeat_tells_the_order_too() -> None:
    """It begins the answer before the backend does."""
    slow: Script = [head(), Step.WAIT, chunk(delta("Hi")), chunk(delta(finish="stop")), chunk(DONE)]
    settings = replace(SETTINGS, timeouts=Timeouts(heartbeat_s=0.01))
    asking = {HEADER: "delimited"}
    async with (
        scripted(stream(delta("Hi"), delta(finish="stop"), DONE), slow) as upstream,
        proxy_before([upstream.url], settings=settings) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        async with http.post(PATH, json=chat(1, 2, stream=True), headers=asking) as answer:
            await answer.read()
        async with http.post(PATH, json=chat(2, 1, stream=True), headers=asking) as answer:
            assert answer.headers[HEADER] == "messages[1]=1,0"
            upstream.go_on()
            assert b"[DONE]" in await answer.read()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
async def test_workers_agree_on_an_order() -> None:
    """What one decided, the others send too: a conversation's next turn may come to any of them."""
    async with (
        scripted(ANSWER) as upstream,
        workers([upstream.url], {"documents": {"by_header": True}}) as made,
    ):
        first, second = [await made.connect(pid) for pid in made.pids()]

        def request(*numbers: int) -> bytes:
            return post(PATH, json.dumps(chat(*numbers)).encode(), {HEADER: "delimited"})

        async def sent(worker: Connection, *numbers: int) -> bytes:
            assert (await worker.ask(request(*numbers))).status == 200
            return upstream.received[-1].body

        await sent(first, 1, 2)
        await sent(first, 5, 2, 1, 4)
        for _ in range(200):
            if await sent(second, 4, 5, 1, 2) == await sent(first, 1, 5, 4, 2):
                return
            await asyncio.sleep(0.02)
        raise AssertionError("the other worker never knew")


@pytest.mark.engine
async def test_a_real_engine_reuses_what_comes_first(two_engine_urls: tuple[str, str]) -> None:
    """Documents that two prompts share are computed once, in whatever order they were retrieved;
    the engine's own count says so."""
    url = two_engine_urls[0]
    async with (
        proxy_before([url], settings=SETTINGS) as server,
        aiohttp.ClientSession(server.url) as http,
    ):

        async def cached(asked: str, *numbers: int) -> int:
            body = chat(*numbers, model="smollm2", max_tokens=1)
            _, answer = await ask(http, body, **{HEADER: asked})
            tokens: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            return tokens

        await cached("none", 1, 2, 3)
        as_sent = await cached("none", 4, 2, 1)
        await cached("delimited", 5, 6, 7)
        ordered = await cached("delimited", 8, 6, 5)
        assert ordered > as_sent + 200
