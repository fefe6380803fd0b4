"""The official Python client, unchanged but for `base_url`, with prefold and two real engines."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from prefold.backends.backend import Mode
from prefold.backends.embedded import EnginePaths
from prefold.backends.engine_process import start_engine
from prefold.measurement.report import report
from prefold.proxy.serve import Running
from tests.support.proxy import proxy_before, until

pytestmark = pytest.mark.engine

# Two tenants whose system prompts differ from the first sentence on.
LIBRARY = "You answer for the city library. " + "Books may be kept for 21 days. " * 12
BAKERY = "You answer for a small bakery. " + "Bread is baked at 5 every morning. " * 12
TOOL = {
    "type": "function",
    "function": {
        "name": "opening_hours",
        "description": "Opening hours of a day",
        "parameters": {"type": "object", "properties": {"day": {"type": "string"}}},
    },
}


@pytest.fixture
async def server(two_engine_urls: tuple[str, str]) -> AsyncIterator[Running]:
    async with proxy_before(two_engine_urls) as running:
        yield running


@pytest.fixture
async def api(server: Running) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


async def cached(api: AsyncOpenAI, system: str, question: str) -> int:
    """Cached tokens of one streamed chat, as the engine reports them."""
    stream = await api.chat.completions.create(
        model="smollm2",
        messages=[{"role": "system", "content": system}, {"role": "user", "content": question}],
        max_tokens=4,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    usages = [part.usage async for part in stream if part.usage is not None]
    assert usages[-1].prompt_tokens_details is not None
    return usages[-1].prompt_tokens_details.cached_tokens or 0


async def test_tokens_are_exact_on_real_engines(server: Running) -> None:
    """Both engines' own ids equal ours, so both are in the best mode there is without events."""
    for backend in server.proxy.pool:
        assert (backend.mode, backend.engine and backend.engine.name) == (
            Mode.FEEDBACK,
            "llama.cpp",
        )


async def test_tenants_find_their_prefix_again_and_the_index_knew_it(
    server: Running, api: AsyncOpenAI
) -> None:
    """Each tenant pays for its system prompt once; expected and reported cached tokens agree."""
    await cached(api, LIBRARY, "Hello")
    await cached(api, BAKERY, "Hello")
    for question in ("When do you open?", "Where are you?", "Who are you?"):
        assert await cached(api, BAKERY, question) > 100
        assert await cached(api, LIBRARY, question) > 100

    total = report(server.proxy.books)["total"]
    assert total["outcomes"] == {"ok": 8}
    assert total["prefill_tokens_saved"] > 600
    assert total["prediction_error_tokens"] <= 8 * 4, "our count and the engine's went apart"


async def test_chat_without_streaming(api: AsyncOpenAI) -> None:
    """The answer, its usage, and our decision beside it."""
    raw = await api.chat.completions.with_raw_response.create(
        model="smollm2", messages=[{"role": "user", "content": "Say hello."}], max_tokens=4
    )
    answer = raw.parse()
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert "mode=feedback" in raw.headers["X-Prefold-Decision"]


async def test_a_prompt_without_exact_ids_does_not_claim_them(server: Running) -> None:
    """The backend's tokens are exact, this request's are not: its decision says so."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    modes = []
    async with aiohttp.ClientSession(server.url) as http:
        for content in ("hello", [image]):
            chat = {
                "model": "smollm2",
                "max_tokens": 1,
                "messages": [{"role": "user", "content": content}],
            }
            async with http.post("/v1/chat/completions", json=chat) as answer:
                modes.append(answer.headers["X-Prefold-Decision"].partition("mode=")[2])
    assert modes[0].startswith("feedback;")
    assert modes[1].startswith("approximate;")


async def test_several_choices(api: AsyncOpenAI) -> None:
    """n=2 is within llama.cpp's two slots; streamed, both choices come to their ends."""
    question: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello."}]
    answer = await api.chat.completions.create(
        model="smollm2",
        messages=question,
        max_tokens=4,
        n=2,
    )
    assert len(answer.choices) == 2
    stream = await api.chat.completions.create(
        model="smollm2",
        messages=question,
        max_tokens=4,
        n=2,
        stream=True,
    )
    ends = {
        choice.index async for part in stream for choice in part.choices if choice.finish_reason
    }
    assert ends == {0, 1}


async def test_tools(server: Running, api: AsyncOpenAI) -> None:
    """Tools, calls and their results pass; their tokens are counted as the engine does."""
    await api.chat.completions.create(
        model="smollm2",
        messages=[
            {"role": "user", "content": "When do you open on Monday?"},
            {
                "role": "assistant",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "opening_hours", "arguments": '{"day":"Monday"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "9 to 17"},
        ],
        tools=[TOOL],  # type: ignore[list-item]
        max_tokens=4,
    )
    assert report(server.proxy.books)["total"]["outcomes"] == {"ok": 1}


@pytest.mark.parametrize("prompt", ["The capital of France is", [504, 3575, 282, 4649, 314]])
async def test_completions(server: Running, api: AsyncOpenAI, prompt: str | list[int]) -> None:
    """Text or token ids; the second time its prefix is known."""
    for _ in range(2):
        answer = await api.completions.create(model="smollm2", prompt=prompt, max_tokens=4)
        assert answer.choices[0].text
    assert report(server.proxy.books)["total"]["expected_cached_tokens"] == 4
    stream = await api.completions.create(model="smollm2", prompt=prompt, max_tokens=4, stream=True)
    assert "".join([part.choices[0].text async for part in stream if part.choices])


async def test_models_and_what_is_not_one(api: AsyncOpenAI) -> None:
    """The union over backends; an unknown name is OpenAI's 404."""
    assert [model.id async for model in api.models.list()] == ["smollm2"]
    assert (await api.models.retrieve("smollm2")).id == "smollm2"
    with pytest.raises(openai.NotFoundError) as error:
        await api.chat.completions.create(
            model="gpt-4o", messages=[{"role": "user", "content": "x"}]
        )
    assert error.value.code == "model_not_found"


async def test_a_prompt_that_is_too_long_is_the_engines_own_error(
    server: Running, api: AsyncOpenAI
) -> None:
    """A client error of one request: no retry elsewhere, and the backend stays in use."""
    with pytest.raises(openai.BadRequestError) as error:
        await api.chat.completions.create(
            model="smollm2", messages=[{"role": "user", "content": "word " * 3000}]
        )
    assert error.value.type == "exceed_context_size_error"
    assert all(backend.health.usable(0.0) for backend in server.proxy.pool)


async def test_an_engine_that_is_killed(engine_paths: EnginePaths, engine_url: str) -> None:
    """In mid-stream: an error, not a short answer. After that, the other one serves; and when it
    comes back on its address, nothing is believed to be in its cache."""
    question: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Count on."}]
    with start_engine(engine_paths) as first:
        url = await asyncio.to_thread(first.wait_ready)
        async with (
            proxy_before([url, engine_url]) as server,
            AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as api,
        ):
            victim, other = server.proxy.pool["b0"], server.proxy.pool["b1"]
            other.queued_tokens += 10**9  # so that the victim is chosen
            stream = await api.chat.completions.create(
                model="smollm2",
                messages=question,
                max_tokens=1500,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            await anext(aiter(stream))
            first.process.kill()
            with pytest.raises(openai.APIError):
                [part async for part in stream]
            await until(lambda: victim.in_flight == 0)
            assert server.proxy.index.size_tokens("b0") > 0

            answer = await api.chat.completions.create(
                model="smollm2", messages=question, max_tokens=4
            )
            assert answer.choices[0].message.content
            assert not victim.health.reachable

            port = int(url.rpartition(":")[2])
            with start_engine(engine_paths, port=port) as again:
                await asyncio.to_thread(again.wait_ready)
                await until(lambda: victim.health.reachable)
                assert server.proxy.index.size_tokens("b0") == 0


async def test_a_client_that_leaves_frees_the_slot(server: Running, api: AsyncOpenAI) -> None:
    """Both the lease and, as its own /slots tells, the engine's slot."""
    stream = await api.chat.completions.create(
        model="smollm2",
        messages=[{"role": "user", "content": "Count to a thousand."}],
        max_tokens=1500,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    async for _ in stream:
        break
    await stream.close()
    await until(lambda: all(backend.in_flight == 0 for backend in server.proxy.pool))
    async with aiohttp.ClientSession() as session:
        for backend in server.proxy.pool:
            for _ in range(200):
                async with session.get(f"{backend.url}/slots") as answer:
                    busy = any(slot["is_processing"] for slot in await answer.json())
                if not busy:
                    break
            assert not busy


async def test_a_prefix_is_one_whatever_api_it_comes_by(server: Running, api: AsyncOpenAI) -> None:
    """Chat, Messages and Responses of one system prompt: what we expect is what engines report."""
    await cached(api, LIBRARY, "Hello")
    system, turn = LIBRARY, {"role": "user", "content": "When do you open?"}
    text = [{"type": "text", "text": LIBRARY[:100]}, {"type": "text", "text": LIBRARY[100:]}]
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/v1/messages", {"system": system, "messages": [turn], "max_tokens": 3}),
        ("/v1/messages", {"system": text, "messages": [turn], "max_tokens": 3}),
        (
            "/v1/responses",
            {"instructions": system, "input": "Who are you?", "max_output_tokens": 3},
        ),
        ("/v1/responses", {"instructions": system, "input": [turn], "max_output_tokens": 3}),
    ]
    async with aiohttp.ClientSession(server.url) as http:
        for path, body in bodies:
            for stream in (False, True):
                body["stream"] = stream
                async with http.post(path, json={"model": "smollm2", **body}) as answer:
                    told = await answer.text()
                decision = answer.headers["X-Prefold-Decision"]
                assert "mode=feedback" in decision
                expected = re.search(r"expected_cached_tokens=(\d+)", decision)
                reported = re.search(r'"(?:cache_read_input|cached)_tokens":(\d+)', told)
                assert expected
                assert reported
                assert int(reported[1]) == int(expected[1]) > 100

    total = report(server.proxy.books)["total"]
    assert total["outcomes"] == {"ok": 9}
