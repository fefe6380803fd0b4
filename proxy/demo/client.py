"""The demo's load: a fixed number of clients in a closed loop, timing what a user would see.

It talks to one base URL through the official `openai` client and knows nothing of backends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import openai
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionMessageParam

from prefold.proxy.demo.workload import Request

DECISION_HEADER = "X-Prefold-Decision"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One request as its client saw it. Times in seconds; None is unknown, never zero."""

    error: str | None = None
    """Name of the exception and of its cause, never its text; nothing else is known then."""
    backend: str | None = None
    mode: str | None = None
    """The routing mode the proxy says it was in for this backend."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    """The engine's own count, out of `usage.prompt_tokens_details`."""
    ttft_s: float | None = None
    """From sending the request to the first chunk with content."""
    gaps_s: tuple[float, ...] = ()
    """Between one content chunk and the next."""
    e2e_s: float | None = None
    """From sending the request to the last chunk with content."""


@dataclass(slots=True)
class _Stopwatch:
    started: float
    chunks: list[float] = field(default_factory=list)

    def sample(self, usage: CompletionUsage | None, decision: dict[str, str]) -> Sample:
        if not self.chunks:
            return Sample(error="NoContent", backend=decision.get("backend"))
        details = usage.prompt_tokens_details if usage else None
        return Sample(
            backend=decision.get("backend"),
            mode=decision.get("mode"),
            prompt_tokens=usage.prompt_tokens if usage else None,
            cached_tokens=details.cached_tokens if details else None,
            ttft_s=self.chunks[0] - self.started,
            gaps_s=tuple(b - a for a, b in zip(self.chunks, self.chunks[1:], strict=False)),
            e2e_s=self.chunks[-1] - self.started,
        )


async def run_requests(
    base_url: str,
    requests: Sequence[Request],
    *,
    model: str,
    clients: int,
    max_tokens: int,
    on_done: Callable[[], None],
) -> list[Sample]:
    """Send every request once; samples in the order of completion.

    Each of `clients` takes the next request in order whose tenant has none in flight: a second
    request of the same tenant at the same time would need a second slot for the same prefix.
    """
    pending = list(requests)
    busy: set[int] = set()
    freed = asyncio.Event()
    samples: list[Sample] = []

    async def client(api: openai.AsyncOpenAI) -> None:
        while pending:
            request = next((r for r in pending if r.tenant not in busy), None)
            if request is None:
                freed.clear()
                await freed.wait()
                continue
            pending.remove(request)
            busy.add(request.tenant)
            samples.append(await send(api, request, model=model, max_tokens=max_tokens))
            busy.remove(request.tenant)
            freed.set()
            on_done()

    # No retries: an error is counted, not hidden.
    async with (
        openai.AsyncOpenAI(
            base_url=f"{base_url}/v1", api_key="demo", max_retries=0, timeout=300.0
        ) as api,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(clients):
            group.create_task(client(api))
    return samples


async def send(api: openai.AsyncOpenAI, request: Request, *, model: str, max_tokens: int) -> Sample:
    usage: CompletionUsage | None = None
    watch = _Stopwatch(time.perf_counter())
    try:
        stream = await api.chat.completions.create(
            model=model,
            messages=cast(list[ChatCompletionMessageParam], list(request.messages)),
            stream=True,
            stream_options={"include_usage": True},
            max_tokens=max_tokens,
            temperature=0.0,
        )
        async for chunk in stream:
            if any(choice.delta.content for choice in chunk.choices):
                watch.chunks.append(time.perf_counter())
            usage = chunk.usage or usage
    except openai.OpenAIError as error:
        cause = f" from {type(error.__cause__).__name__}" if error.__cause__ else ""
        return Sample(error=f"{type(error).__name__}{cause}")
    return watch.sample(usage, parse_decision(stream.response.headers.get(DECISION_HEADER, "")))


def parse_decision(header: str) -> dict[str, str]:
    """ "backend=engine-0; reason=..." as a dictionary; {} without the header."""
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return {name: value for name, equals, value in pairs if equals}
