"""The load: prompts sent at given times, whatever is still open, and what their client sees.

Its clock starts with a request's dispatch. One that is dispatched late (this process was busy, or
the machine) is counted, since it came at another moment than it should.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import aiohttp

from tests.benchmark.routing.workload import Prompt

TEXT = re.compile(rb'"content": ?"[^"]')
"""In an event that brings text, and in no other."""
DECISION = "X-Prefold-Decision"
GIVE_UP_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One request. Times in seconds; `sent_at` and `ended_at` from the load's start."""

    error: str = ""
    """What went wrong, never a text of the answer; no figure is known then but the times."""
    sent_at: float
    ended_at: float
    late_s: float
    ttft_s: float | None = None
    """To the first event with text."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    """The engine's own, out of `usage`; None is unknown."""
    decision: str = ""
    """prefold's own account of it; "" of another program."""


def body_of(prompt: Prompt, model: str) -> bytes:
    chat = {
        "model": model,
        "messages": [{"role": "user", "content": prompt.text}],
        "max_tokens": prompt.answer_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return json.dumps(chat).encode()


async def play(
    url: str, prompts: Sequence[Prompt], arrivals: Sequence[float], model: str
) -> list[Sample]:
    """A sample for each prompt, in their order."""
    bodies = [body_of(prompt, model) for prompt in prompts]
    timeout = aiohttp.ClientTimeout(total=GIVE_UP_S)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        start = time.perf_counter()

        async def one(body: bytes, due: float) -> Sample:
            await asyncio.sleep(max(start + due - time.perf_counter(), 0.0))
            return await _send(session, f"{url}/v1/chat/completions", body, start, due)

        tasks = [
            asyncio.create_task(one(body, due)) for body, due in zip(bodies, arrivals, strict=True)
        ]
        return await asyncio.gather(*tasks)


async def _send(
    session: aiohttp.ClientSession, url: str, body: bytes, start: float, due: float
) -> Sample:
    sent = time.perf_counter()

    def sample(error: str) -> Sample:
        ended = time.perf_counter() - start
        return Sample(error=error, sent_at=sent - start, ended_at=ended, late_s=sent - start - due)

    headers = {"Content-Type": "application/json"}
    try:
        async with session.post(url, data=body, headers=headers) as answer:
            if answer.status != 200:
                return sample(f"status {answer.status}")
            first, text = await _read(answer)
            decision = answer.headers.get(DECISION, "")
    except (aiohttp.ClientError, TimeoutError) as error:
        return sample(type(error).__name__)
    if first is None:
        return sample("no text")
    usage = usage_of(text)
    if usage is None:
        return sample("no usage")
    details = usage.get("prompt_tokens_details") or {}
    return replace(
        sample(""),
        ttft_s=first - sent,
        prompt_tokens=usage["prompt_tokens"],
        cached_tokens=details.get("cached_tokens"),
        decision=decision,
    )


async def _read(answer: aiohttp.ClientResponse) -> tuple[float | None, bytearray]:
    """When the first text came, and the whole body."""
    first, body = None, bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if first is None and TEXT.search(body):
            first = time.perf_counter()
    return first, body


def usage_of(body: bytes | bytearray) -> dict[str, Any] | None:
    """Of a whole stream that ended as it must; None otherwise."""
    events = bytes(body).replace(b"\r\n", b"\n").rstrip().split(b"\n\n")
    if events[-1] != b"data: [DONE]":
        return None
    for event in reversed(events[:-1]):
        if not event.startswith(b"data: {"):
            continue
        usage: dict[str, Any] | None = json.loads(event.removeprefix(b"data: ")).get("usage")
        if usage:
            return usage
    return None
