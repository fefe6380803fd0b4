"""Upstreams that fail, at each point of an exchange, before the official Python client."""

import asyncio
import json
from dataclasses import replace

import aiohttp
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk

from prefold.measurement.report import report
from prefold.proxy.settings import Timeouts
from tests.support.proxy import BASE, proxy_before, until
from tests.support.upstream import (
    DONE,
    Script,
    Step,
    chunk,
    delta,
    event,
    head,
    scripted,
    stream,
    whole,
)

ROLE = delta("", role="assistant")
SOUND = stream(ROLE, delta("Hi"), delta(" there"), delta(finish="stop"), DONE)
ANSWER = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
}


def client(url: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


async def streamed(url: str) -> list[ChatCompletionChunk]:
    async with client(url) as api:
        answer = await api.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hello"}], stream=True
        )
        return [part async for part in answer]


def text(parts: list[ChatCompletionChunk]) -> str:
    return "".join(part.choices[0].delta.content or "" for part in parts if part.choices)


async def test_a_sound_stream_arrives_whole() -> None:
    """The plain case, so that the failures below mean something."""
    async with scripted(SOUND) as upstream, proxy_before([upstream.url]) as server:
        assert text(await streamed(server.url)) == "Hi there"


@pytest.mark.parametrize(
    "script",
    [
        [Step.CLOSE],
        [Step.RESET],
        [head()[:20], Step.CLOSE],
        [head(), Step.CLOSE],
        [head(), chunk(b"data: {"), Step.CLOSE],
        [head(), chunk(b"data: {"), Step.RESET],
        whole({"error": {"message": "busy"}}, 503),
        whole({"error": {"message": "slow down"}}, 429),
        [b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n"],
        [head(200, "application/json"), chunk(b'{"id"'), Step.CLOSE],
    ],
    ids=[
        "close",
        "reset",
        "in head",
        "no event",
        "in event",
        "reset in event",
        "503",
        "429",
        "empty",
        "half a body",
    ],
)
async def test_a_failure_before_the_first_event_is_made_good_elsewhere(
    script: list[bytes | Step],
) -> None:
    """A backend that dies before the first byte: the request succeeds on the other one."""
    async with (
        scripted(script) as bad,
        scripted(SOUND) as good,
        proxy_before([bad.url, good.url]) as server,
    ):
        server.proxy.pool["b1"].queued_tokens += 10**9  # so that the bad one is chosen first
        assert text(await streamed(server.url)) == "Hi there"
        assert len(bad.received) >= 1
        assert len(good.received) == 1


@pytest.mark.parametrize(
    "end",
    [
        [Step.CLOSE],
        [Step.RESET],
        [b"0\r\n\r\n"],
        [chunk(b'data: {"choices'), Step.CLOSE],
        [chunk(event(object="error", message="boom", code=500)), chunk(DONE), b"0\r\n\r\n"],
        [chunk(event(error="boom")), b"0\r\n\r\n"],
        [chunk(event(error={"message": "boom", "type": "server_error"})), b"0\r\n\r\n"],
    ],
    ids=["close", "reset", "clean end", "in event", "flat", "string", "object"],
)
async def test_a_stream_cut_in_the_middle_is_an_error_to_the_client(
    end: list[bytes | Step],
) -> None:
    """Whatever way a stream ends early, openai-python raises instead of giving a short answer."""
    script = [head(), chunk(ROLE), chunk(delta("Hi")), *end]
    async with (
        scripted(script) as bad,
        scripted(SOUND) as good,
        proxy_before([bad.url, good.url]) as server,
    ):
        server.proxy.pool["b1"].queued_tokens += 10**9
        with pytest.raises(openai.APIError):
            await streamed(server.url)
        assert not good.received, "a retry after the first byte"
        await until(lambda: server.proxy.pool["b0"].in_flight == 0)


@pytest.mark.parametrize("end", [[Step.WAIT], [b"not a chunk size\r\n", Step.WAIT]])
async def test_a_stream_that_goes_silent_is_cut_after_the_idle_limit(
    end: list[bytes | Step],
) -> None:
    """aiohttp stays silent itself after a broken chunk size; the same limit ends that too."""
    settings = replace(BASE, timeouts=Timeouts(idle_s=0.2))
    script = [head(), chunk(ROLE), chunk(delta("Hi")), *end]
    async with (
        scripted(script) as upstream,
        proxy_before([upstream.url], settings=settings) as server,
    ):
        with pytest.raises(openai.APIError):
            await streamed(server.url)
        await until(lambda: server.proxy.pool["b0"].in_flight == 0)


async def test_a_backend_that_does_not_answer_in_time_is_504_and_not_retried() -> None:
    """It may still be computing: a second prefill elsewhere would double the load."""
    settings = replace(BASE, timeouts=Timeouts(first_byte_s=0.2))
    async with (
        scripted([Step.WAIT]) as silent,
        scripted(SOUND) as other,
        proxy_before([silent.url, other.url], settings=settings) as server,
    ):
        server.proxy.pool["b1"].queued_tokens += 10**9
        with pytest.raises(openai.InternalServerError) as error:
            await streamed(server.url)
        assert error.value.status_code == 504
        assert not other.received


async def test_a_stream_without_done_whose_choices_finished_is_whole() -> None:
    """Some servers send no [DONE]: a finish_reason for every choice is an ending too."""
    script = [*SOUND[:-2], SOUND[-1]]
    async with scripted(script) as upstream, proxy_before([upstream.url]) as server:
        assert text(await streamed(server.url)) == "Hi there"


@pytest.mark.parametrize("end", [[Step.RESET], [Step.CLOSE]])
async def test_what_comes_after_done_takes_nothing_away(end: Script) -> None:
    """A connection that breaks behind the terminal event broke nothing of the answer."""
    async with (
        scripted([*SOUND[:-1], *end]) as upstream,
        proxy_before([upstream.url]) as server,
    ):
        assert text(await streamed(server.url)) == "Hi there"
        assert report(server.proxy.books)["total"]["outcomes"] == {"ok": 1}


async def test_a_kept_connection_that_closes_as_we_write_is_made_good() -> None:
    """Sent once more on a fresh one, at once and to the same backend; a fresh one is not."""
    async with (
        scripted(whole(ANSWER), [Step.CLOSE], whole(ANSWER), [Step.CLOSE]) as upstream,
        proxy_before([upstream.url]) as server,
        aiohttp.ClientSession() as session,
    ):
        body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
        statuses = []
        for _ in range(3):
            async with session.post(f"{server.url}/v1/chat/completions", json=body) as answer:
                statuses.append(answer.status)
        assert statuses == [200, 200, 502]
        assert len(upstream.received) == 5


async def test_what_an_engine_was_not_built_for_is_no_failure() -> None:
    """Anybody could otherwise shut a backend out with requests that it answers 501."""
    refusal = {"error": {"message": "not built in"}}
    async with (
        scripted(whole(refusal, 501)) as upstream,
        proxy_before([upstream.url]) as server,
        aiohttp.ClientSession() as session,
    ):
        for _ in range(5):
            async with session.post(f"{server.url}/v1/embeddings", json={"model": "m"}) as answer:
                assert answer.status == 501
        assert server.proxy.pool["b0"].health.usable(0.0)


@pytest.mark.parametrize("prelude", [[], [head(), chunk(delta("Hi"))]], ids=["before", "after"])
async def test_a_client_that_leaves_aborts_the_upstream(prelude: list[bytes | Step]) -> None:
    """Before and after the first byte: the engine must not run on for nobody."""
    async with (
        scripted([*prelude, Step.WAIT]) as upstream,
        proxy_before([upstream.url]) as server,
        aiohttp.ClientSession() as session,
    ):
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}]}

        async def ask() -> None:
            async with session.post(f"{server.url}/v1/chat/completions", json=body) as answer:
                await answer.read()

        asking = asyncio.ensure_future(ask())
        await until(lambda: len(upstream.received) == 1)
        if prelude:
            await until(lambda: server.proxy.pool["b0"].queued_tokens == 0)
        asking.cancel()
        await until(lambda: upstream.clients_gone == 1)
        await until(lambda: server.proxy.pool["b0"].in_flight == 0)
        await until(lambda: report(server.proxy.books)["total"]["outcomes"] == {"client_gone": 1})


async def test_no_backend_is_503_with_retry_after() -> None:
    """A model that is known but whose backends are down."""
    async with scripted(SOUND) as upstream, proxy_before([upstream.url]) as server:
        server.proxy.pool["b0"].health.down()
        async with aiohttp.ClientSession() as session:
            body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
            async with session.post(f"{server.url}/v1/chat/completions", json=body) as answer:
                assert answer.status == 503
                assert int(answer.headers["Retry-After"]) > 0
                assert (await answer.json())["error"]["code"] == "no_backend_available"


async def test_an_engines_own_error_passes_unchanged_and_is_not_retried() -> None:
    """A 400 says something about the request, not about the backend."""
    refusal = {"error": {"message": "too long", "type": "exceed_context_size_error", "n_ctx": 9}}
    async with (
        scripted(whole(refusal, 400)) as first,
        scripted(whole(refusal, 400)) as second,
        proxy_before([first.url, second.url]) as server,
        aiohttp.ClientSession() as session,
    ):
        body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
        for _ in range(5):
            async with session.post(f"{server.url}/v1/chat/completions", json=body) as answer:
                assert answer.status == 400
                assert await answer.json() == refusal
        assert len(first.received) + len(second.received) == 5


async def test_a_200_that_holds_an_error_counts_as_one() -> None:
    """Relayed as it is, but not among the answered requests."""
    refusal = {"error": {"message": "queue full", "code": 503}}
    async with (
        scripted(whole(refusal)) as upstream,
        proxy_before([upstream.url]) as server,
        aiohttp.ClientSession() as session,
    ):
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
        async with session.post(f"{server.url}/v1/chat/completions", json=body) as answer:
            assert await answer.json() == refusal
        assert report(server.proxy.books)["total"]["outcomes"] == {"upstream_error": 1}


async def test_a_backend_that_keeps_failing_is_set_aside() -> None:
    """Passive evidence wins over probes that still succeed."""
    async with (
        scripted(whole({"error": {"message": "boom"}}, 500)) as bad,
        scripted(whole(ANSWER)) as good,
        proxy_before([bad.url, good.url]) as server,
        aiohttp.ClientSession() as session,
    ):
        server.proxy.pool["b1"].queued_tokens += 10**9
        body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
        statuses = []
        for _ in range(6):
            async with session.post(f"{server.url}/v1/chat/completions", json=body) as answer:
                statuses.append(answer.status)
        assert statuses == [500, 500, 500, 200, 200, 200]


async def test_request_bytes_reach_the_upstream_unchanged() -> None:
    """Big integers, unknown members, order, white space and escapes all survive."""
    raw = (
        b'{ "seed": 12345678901234567890123, "model":"m","x_unknown":{"b":1,"a":[1.0,1e2]},\n'
        b'"messages":[{"role":"user","content":"caf\\u00e9 \\ud83d\\ude00"}]}'
    )
    async with (
        scripted(whole(ANSWER)) as upstream,
        proxy_before([upstream.url]) as server,
        aiohttp.ClientSession() as session,
    ):
        async with session.post(f"{server.url}/v1/chat/completions", data=raw) as answer:
            assert await answer.json() == ANSWER
        assert upstream.received[0].body == raw


async def test_a_usage_chunk_that_we_asked_for_is_not_shown() -> None:
    """`include_usage` is added for engines that need it, and its extra chunk taken out again."""
    usage = event(
        id="c1",
        object="chat.completion.chunk",
        created=1,
        model="m",
        choices=[],
        usage={"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
    )
    script = stream(delta("Hi"), delta(finish="stop"), usage, DONE)
    async with scripted(script) as upstream, proxy_before([upstream.url]) as server:
        parts = await streamed(server.url)

        assert all(part.usage is None and part.choices for part in parts)
        sent = json.loads(upstream.received[0].body)
        assert sent["stream_options"] == {"include_usage": True}
        async with client(server.url) as api:
            asked = await api.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": "hello"}],
                stream=True,
                stream_options={"include_usage": True},
            )
            assert [part.usage.prompt_tokens async for part in asked if part.usage] == [9]
