"""The same questions through the real proxy to real engines, in one order and in another: what the
engines report as cached, and what they answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import aiohttp

from prefold.backends.embedded import EnginePaths
from prefold.backends.engine_process import start_engine
from prefold.proxy.documents.documents import HEADER
from prefold.proxy.settings import Model
from tests.benchmark.rag.corpus import Question, chat
from tests.support.mocker import mocker
from tests.support.proxy import proxy_before

CLIENTS = 2
BLOCK = 16
TIMEOUT = aiohttp.ClientTimeout(total=300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """Tokens as the engine reports them; `prefill_ms` is llama.cpp's own, None of others."""

    prompt_tokens: int
    cached_tokens: int
    prefill_ms: float | None
    text: str
    moved: bool


@asynccontextmanager
async def llama_cpp(
    paths: EnginePaths, *, engines: int, slots: int, ordered: bool
) -> AsyncIterator[str]:
    """A proxy before fresh engines, that puts documents in order or leaves them; its base URL."""
    async with AsyncExitStack() as stack:
        running = [
            stack.enter_context(start_engine(paths, slots=slots, context_per_slot=2048))
            for _ in range(engines)
        ]
        urls = [await asyncio.to_thread(engine.wait_ready) for engine in running]
        models = {"smollm2": Model(tokenizer=str(paths.model), documents=marks(ordered))}
        server = await stack.enter_async_context(proxy_before(urls, models=models))
        yield server.url


@asynccontextmanager
async def mockers(
    python: Path, folder: Path, *, engines: int, cache_tokens: int, ordered: bool
) -> AsyncIterator[str]:
    """The same before fresh mockers, which have vLLM's prefix cache and no model."""
    async with AsyncExitStack() as stack:
        urls = []
        for number in range(engines):
            home = folder / f"{number}"
            home.mkdir()
            running = mocker(python, home, block_tokens=BLOCK, blocks=cache_tokens // BLOCK)
            urls.append(stack.enter_context(running).url)
        tokenizer = str(folder / "0" / "model")
        models = {"mock": Model(tokenizer=tokenizer, documents=marks(ordered))}
        server = await stack.enter_async_context(proxy_before(urls, models=models))
        yield server.url


def marks(ordered: bool) -> tuple[Literal["delimited"], ...]:
    return ("delimited",) if ordered else ()


async def ask_all(
    url: str, questions: Sequence[Question], *, model: str, max_tokens: int
) -> list[Answered]:
    """In order, by a few clients in a closed loop. An error ends the run: a figure without those
    that failed would be none."""
    waiting = list(enumerate(questions))[::-1]
    found: dict[int, Answered] = {}

    async def client(http: aiohttp.ClientSession) -> None:
        while waiting:
            number, question = waiting.pop()
            body = {
                "model": model,
                "messages": chat(question),
                "max_tokens": max_tokens,
                "temperature": 0,
                "seed": 1,
            }
            async with http.post("/v1/chat/completions", json=body) as answer:
                answer.raise_for_status()
                moved = HEADER in answer.headers
                found[number] = _answered(await answer.json(), moved)

    async with aiohttp.ClientSession(url, timeout=TIMEOUT) as http:
        await asyncio.gather(*(client(http) for _ in range(CLIENTS)))
    return [found[number] for number in range(len(questions))]


def _answered(told: dict[str, Any], moved: bool) -> Answered:
    usage = told["usage"]
    return Answered(
        prompt_tokens=usage["prompt_tokens"],
        cached_tokens=usage["prompt_tokens_details"]["cached_tokens"],
        prefill_ms=told.get("timings", {}).get("prompt_ms"),
        text=told["choices"][0]["message"]["content"] or "",
        moved=moved,
    )
