"""Whole, sound streams of each protocol, written as SSE allows. Pure, from a seed."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Asked:
    number: int
    path: str
    streamed: bool
    usage: bool


def events(rng: random.Random, asked: Asked) -> list[bytes]:
    """A whole stream's events in the path's protocol, without their line ends."""
    words = [
        rng.choice(("Hi", " there", "é", "🙂", "\n", '"', "", " ")) for _ in range(rng.randrange(6))
    ]
    if asked.path == "/v1/messages":
        return _messages_events(words)
    if asked.path == "/v1/responses":
        return _responses_events(words)
    return _chunks(rng, asked, words)


def data_event(value: Any, name: str = "") -> bytes:
    named = f"event: {name}\n".encode() if name else b""
    return named + b"data: " + json.dumps(value).encode()


def _chunks(rng: random.Random, asked: Asked, words: list[str]) -> list[bytes]:
    chat = asked.path == "/v1/chat/completions"

    def chunk(word: str, finish: str | None, **more: Any) -> bytes:
        said: dict[str, Any] = {"delta": {"content": word}} if chat else {"text": word}
        choice = {"index": 0, **said, "finish_reason": finish}
        return data_event({"id": "c", "object": "x", "model": "m", "choices": [choice], **more})

    made = [chunk(word, None) for word in words]
    made.append(chunk("", rng.choice(("stop", "length"))))
    if asked.usage:
        made.append(data_event({"id": "c", "object": "x", "choices": [], "usage": USAGE}))
    return [*made, b"data: [DONE]"]


USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}


def _messages_events(words: list[str]) -> list[bytes]:
    start = {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 9}}}
    deltas = [
        data_event({"type": kind, "index": 0, "delta": {"type": "text_delta", "text": word}}, kind)
        for kind in ("content_block_delta",)
        for word in words
    ]
    return [
        data_event(start, "message_start"),
        *deltas,
        data_event({"type": "message_stop"}, "message_stop"),
    ]


def _responses_events(words: list[str]) -> list[bytes]:
    kind = "response.output_text.delta"
    made = [
        data_event({"type": kind, "sequence_number": number, "delta": word}, kind)
        for number, word in enumerate(words)
    ]
    last = {"id": "resp_1", "object": "response", "status": "completed", "usage": None}
    end = "response.completed"
    return [*made, data_event({"type": end, "sequence_number": len(words), "response": last}, end)]


def blocks(rng: random.Random, made: list[bytes]) -> list[bytes]:
    """Events as they stand in a body, in one of SSE's ways, with what SSE allows between them."""
    line_end = rng.choice((b"\n", b"\n", b"\n", b"\r\n"))
    body = [b"\xef\xbb\xbf: x" + line_end * 2] if rng.random() < 0.03 else []
    for event in made:
        before = b""
        if rng.random() < 0.05:
            before = rng.choice((b": ping", b"id: 7", b"retry: 10", b"unknown: x", b":")) + line_end
            if rng.random() < 0.5:
                body.append(before + line_end)
                before = b""
        body.append(before + event.replace(b"\n", line_end) + line_end * 2)
    return body


def joined(rng: random.Random, made: list[bytes]) -> bytes:
    return b"".join(blocks(rng, made))
