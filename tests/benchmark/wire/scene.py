"""What the stub engine answers, and the bytes it answers with; the load checks against the same."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from tests.benchmark.wire.bodies import MODEL

JSON_HEAD = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"
CONTENT = b'"content":'
"""Is in every event that brings text, and in no other."""
DONE = b"data: [DONE]\n\n"
PREFILL_TOKENS_PER_MS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """How the next chats are answered. Token counts are what the stub reports of each prompt."""

    chunks: int
    """Events with text in a stream; 0: the answer comes whole."""
    ttft_ms: float = 0.0
    """From the request's last byte to a stream's first event; its head goes out at once."""
    pace_ms: float = 0.0
    """Between two events; 0: one in each turn of the stub's event loop."""
    prompt_tokens: int = 100
    cached_tokens: int = 0

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def scene_of(raw: bytes) -> Scene:
    return Scene(**json.loads(raw))


def text_event() -> bytes:
    """About 214 bytes with its framing, as engines' chunks are."""
    choice = {"index": 0, "delta": {"content": " token"}, "logprobs": None, "finish_reason": None}
    return _event(_chunk([choice]))


def last_events(scene: Scene) -> bytes:
    """The finish, then usage in an event of its own as `include_usage` asks, then [DONE]."""
    choice = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    usage = {**_chunk([]), "usage": _usage(scene), "timings": _timings(scene)}
    return _event(_chunk([choice])) + _event(usage) + DONE


def whole_answer(scene: Scene) -> bytes:
    """A response with its head."""
    message = {"role": "assistant", "content": " token"}
    body = {
        **_chunk([{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}]),
        "object": "chat.completion",
        "usage": _usage(scene),
        "timings": _timings(scene),
    }
    return json_response(body)


def json_response(value: Any, status: int = 200) -> bytes:
    body = compact(value)
    return JSON_HEAD % (status, len(body)) + body


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _chunk(choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": "chatcmpl-0123456789abcdef",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": MODEL,
        "choices": choices,
    }


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + compact(value) + b"\n\n"


def _usage(scene: Scene) -> dict[str, Any]:
    completion = max(scene.chunks, 1)
    return {
        "prompt_tokens": scene.prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": scene.prompt_tokens + completion,
        "prompt_tokens_details": {"cached_tokens": scene.cached_tokens},
    }


def _timings(scene: Scene) -> dict[str, Any]:
    """llama.cpp's, in its units: cache_n and prompt_n are the prompt, cached and computed."""
    computed = scene.prompt_tokens - scene.cached_tokens
    return {
        "cache_n": scene.cached_tokens,
        "prompt_n": computed,
        "prompt_ms": computed / PREFILL_TOKENS_PER_MS,
        "predicted_n": max(scene.chunks, 1),
        "predicted_ms": 1.0,
    }
