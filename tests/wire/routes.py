"""Scenarios of routing: each plays one case and returns what went wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tests.support.upstream import whole
from tests.wire.fleet import MODEL, Fleet, fleet
from tests.wire.lifecycle import ANSWER

EXPECTED = re.compile(r"expected_cached_tokens=(\d+)")
TEXT = "You are a tea sommelier. " * 40


async def _asked(running: Fleet, bodies: list[Any], path: str) -> list[str]:
    """The bodies one after the other; statuses that are not 200."""
    answers = [await running.ask(body, path) for body in bodies]
    return [f"status {answer.status}" for answer in answers if answer.status != 200]


async def nonce(given: Mapping[str, Any]) -> list[str]:
    """A line that differs in each request and stands before all else is no part of the key; the
    bodies pass as they are."""
    bodies = [
        {
            "model": MODEL,
            "max_tokens": 9,
            "system": [
                {"type": "text", "text": f"x-anthropic-billing-header: v=9; cch={number:05};"},
                {"type": "text", "text": TEXT},
            ],
            "messages": [{"role": "user", "content": f"Question {number}"}],
        }
        for number in range(given["requests"])
    ]
    async with fleet(*[whole(ANSWER)] * 3) as running:
        wrong = await _asked(running, bodies, "/v1/messages")
        served = sorted(running.served())
        received = b"".join(r.body for u in running.upstreams for r in u.received)
    if served != [0, 0, given["requests"]]:
        wrong.append(f"spread over backends: {served}")
    return wrong if received.count(b"cch=") == given["requests"] else [*wrong, "bodies changed"]


async def long_url(given: Mapping[str, Any]) -> list[str]:
    """Images that differ only in the last bytes of a long URL are different prompts."""
    bodies = [_image("A" * 4096 + f"{number:04}") for number in range(given["requests"])]
    async with fleet(*[whole(ANSWER)] * 3) as running:
        answers = [await running.ask(body, "/v1/chat/completions") for body in bodies]
    wrong = [f"status {answer.status}" for answer in answers if answer.status != 200]
    said = [answer.header("X-Prefold-Decision") or "" for answer in answers]
    expected = [int(EXPECTED.search(header)[1]) for header in said]  # type: ignore[index]
    # A block before the URL is shared; in the key the URL is a digest of all of it.
    return wrong if max(expected) <= 32 else [*wrong, f"taken for the same: {max(expected)}"]


def _image(data: str) -> Any:
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    return {"model": MODEL, "messages": [{"role": "user", "content": [part]}]}


async def response_follows(given: Mapping[str, Any]) -> list[str]:
    """What goes on with a response goes to the backend that made it, and an unknown one nowhere."""
    scripts = [
        whole({"id": f"resp_{n}", "object": "response", "status": "completed"}) for n in (0, 1)
    ]
    async with fleet(*scripts) as running:
        ids = []
        for number in range(given["requests"]):
            made = await running.ask(
                {"model": MODEL, "input": f"{number} " + TEXT}, "/v1/responses"
            )
            ids.append(made.json()["id"])
        before = running.served()
        for name in ids:
            body = {"model": MODEL, "input": "Go on.", "previous_response_id": name}
            await running.ask(body, "/v1/responses")
        after = running.served()
        body = {"model": MODEL, "input": "Go on.", "previous_response_id": "resp_unknown"}
        unknown = await running.ask(body, "/v1/responses")
    wrong = []
    for number in (0, 1):
        gone_on, made_there = after[number] - before[number], ids.count(f"resp_{number}")
        if gone_on != made_there:
            wrong.append(f"backend {number}: made {made_there}, went on with {gone_on}")
    return wrong if unknown.status == 404 else [*wrong, f"unknown: {unknown.status}"]
