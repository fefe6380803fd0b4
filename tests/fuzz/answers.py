"""Answers of upstreams, sound and hostile, as steps on a socket. Pure, from a seed and a number.

Each echoes the request's number in `X-Fuzz`, and says what a client must make of it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

from tests.fuzz.streams import USAGE, Asked, blocks, data_event, events, joined

PAUSE_S = 0.002


class Step(Enum):
    """What an upstream does besides sending bytes."""

    PAUSE = "wait a little, so that what follows is a read of its own"
    CLOSE = "close"
    RESET = "reset"
    SILENCE = "nothing until the other side leaves"


class Truth(Enum):
    """What a client must not be told otherwise."""

    SOUND = "the answer is whole: the client gets these bytes, and their end"
    CUT = "the answer is not whole: a clean end would be a lie"
    OPEN = "anything but a lie about the framing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    kind: str
    steps: tuple[bytes | Step, ...]
    truth: Truth
    status: int = 200
    body: bytes = b""
    """What the client must see if it is sound."""
    body_without_usage: bytes = b""
    """The same where it did not ask for the usage chunk, and prefold did."""


def answer(seed: int, number: int, path: str, streamed: bool, usage: bool) -> Answer:
    """The same for the same arguments; `usage`: the request asked for a usage chunk."""
    rng = random.Random(f"answer {seed} {number}")
    [make] = rng.choices(list(KINDS), list(KINDS.values()))
    return make(rng, Asked(number, path, streamed, usage))


def head(asked: Asked, status: bytes, *lines: bytes) -> bytes:
    return b"\r\n".join([b"HTTP/1.1 " + status, b"X-Fuzz: %d" % asked.number, *lines, b"", b""])


SSE = b"Content-Type: text/event-stream"
JSON = b"Content-Type: application/json"
CHUNKED = b"Transfer-Encoding: chunked"
END = b"0\r\n\r\n"


def chunked(rng: random.Random, body: bytes) -> list[bytes | Step]:
    """A body in chunks that are cut anywhere."""
    cuts = sorted(rng.randrange(len(body) + 1) for _ in range(rng.choice((0, 1, 3))))
    bounds = [0, *cuts, len(body)]
    steps: list[bytes | Step] = []
    for start, end in pairwise(bounds):
        if start != end:
            steps.append(b"%x\r\n%s\r\n" % (end - start, body[start:end]))
            if rng.random() < 0.3:
                steps.append(Step.PAUSE)
    return steps


def whole_json(asked: Asked) -> bytes:
    message = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "text": "Hi"}
    return json.dumps({"id": "c", "object": "x", "choices": [message], "usage": USAGE}).encode()


def sound(rng: random.Random, asked: Asked) -> Answer:
    if not asked.streamed:
        body = whole_json(asked)
        made = head(asked, b"200 OK", JSON, b"Content-Length: %d" % len(body)) + body
        return Answer(
            kind="sound whole",
            steps=(made,),
            truth=Truth.SOUND,
            body=body,
            body_without_usage=body,
        )
    parts = blocks(rng, events(rng, asked))
    body = b"".join(parts)
    return Answer(
        kind="sound stream",
        steps=(head(asked, b"200 OK", SSE, CHUNKED), *chunked(rng, body), END),
        truth=Truth.SOUND,
        body=body,
        body_without_usage=b"".join(
            block for block in parts if b'"choices": [], "usage"' not in block
        ),
    )


def cut_stream(rng: random.Random, asked: Asked) -> Answer:
    """Ends somewhere before its terminal event, in one of the ways in which bodies end."""
    made = events(rng, asked)
    kept = made[: rng.randrange(len(made))]
    # Not a finish_reason without [DONE]: every choice is finished then, so nothing is missing.
    kept = [event for event in kept if b'"finish_reason": "' not in event and b"usage" not in event]
    body = joined(rng, kept)
    if rng.random() < 0.5:
        body += b'data: {"choices": [{"index"'
    steps = (head(asked, b"200 OK", SSE, CHUNKED), *chunked(rng, body))
    end = rng.choice((END, Step.CLOSE, Step.RESET, b"zz\r\n"))
    last = (end, Step.CLOSE) if isinstance(end, bytes) and end != END else (end,)
    return Answer(kind="cut stream", steps=(*steps, *last), truth=Truth.CUT)


def error_event(rng: random.Random, asked: Asked) -> Answer:
    made = events(rng, asked)
    error: dict[str, Any] = rng.choice(
        (
            {
                "error": {
                    "message": "x",
                    "type": "server_error",
                    "code": rng.choice((500, "429", None)),
                }
            },
            {"error": "x"},
            {"error": []},
            {"object": "error", "message": "x", "code": 400},
            {"type": "error", "error": {"type": "overloaded_error", "message": "x"}},
            {"error": None},
        )
    )
    made.insert(rng.randrange(len(made)), data_event(error, rng.choice(("", "error"))))
    steps = (head(asked, b"200 OK", SSE, CHUNKED), *chunked(rng, joined(rng, made)), END)
    return Answer(kind="error event", steps=steps, truth=Truth.OPEN)


def odd_events(rng: random.Random, asked: Asked) -> Answer:
    """Well framed, and anything as events."""
    odd = (
        b"data: {}",
        b"data: []",
        b"data: null",
        b"data: {",
        b"data: \xff\xfe",
        b"data: [DONE]",
        b"data:",
        b"data",
        b"event: done",
        b'data: {"choices": null}',
        b'data: {"choices": [{"index": 5, "delta": null}]}',
        b'data: {"choices": [{"delta": {"content": 5}}]}',
        b'data: {"usage": {"prompt_tokens": "x"}}',
        b'data: {"usage": {"prompt_tokens": -5, "prompt_tokens_details": {"cached_tokens": 10}}}',
        b'data: {"choices": [], "timings": {"prompt_n": 1e99, "cache_n": -1, "prompt_ms": 0}}',
        b'data: {"choices": [{"index": 99999999999999999999999}]}',
        b"data: " + b"[" * 3000,
        b'data: {"a": "' + b"x" * 5000 + b'"}',
        b"data: \xef\xbb\xbf{}",
        b"\x00",
    )
    made = [rng.choice(odd) for _ in range(rng.randrange(8))]
    if rng.random() < 0.5:
        made += events(rng, asked)
    body = joined(rng, made)
    if rng.random() < 0.3:
        body = body.replace(b"\n", b"\r")
    steps = (head(asked, b"200 OK", SSE, CHUNKED), *chunked(rng, body), END)
    return Answer(kind="odd events", steps=steps, truth=Truth.OPEN)


def garbage_body(rng: random.Random, asked: Asked) -> Answer:
    body = rng.randbytes(rng.randrange(600))
    kind = rng.choice((SSE, JSON, b"Content-Type: \xff", b"X-None: 1"))
    steps = (head(asked, b"200 OK", kind, CHUNKED), *chunked(rng, body), END)
    return Answer(kind="garbage body", steps=steps, truth=Truth.OPEN)


STATUSES = (400, 401, 404, 409, 413, 422, 429, 501, 502, 503, 504, 507, 529, 599)
"""Not 500: that one is left to be ours, if it comes."""


def error_status(rng: random.Random, asked: Asked) -> Answer:
    status = rng.choice(STATUSES)
    body = rng.choice(
        (
            b'{"error": {"message": "x", "type": "t", "param": null, "code": null}}',
            b'{"error": "x"}',
            b'{"message": "x", "code": 5}',
            b'{"detail": [{"msg": "x"}]}',
            b"<html>502</html>",
            b"",
            b"\xff",
            b"[" * 3000,
            b"null",
        )
    )
    extra = rng.choice(
        (b"Retry-After: 1", b"Retry-After: soon", b"x-should-retry: false", b"X-A: b")
    )
    lines = (JSON, extra, b"Content-Length: %d" % len(body))
    made = head(asked, b"%d Whatever" % status, *lines) + body
    return Answer(kind="error status", steps=(made,), truth=Truth.OPEN, status=status)


def odd_status(rng: random.Random, asked: Asked) -> Answer:
    """Statuses that no LLM server should answer a POST with."""
    line = rng.choice(
        (b"204 No Content", b"304 Not Modified", b"302 Found", b"307 X", b"206 Partial")
    )
    before = rng.choice(
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early\r\nA: b\r\n\r\n")
    )
    where = b"Location: http://127.0.0.1:1/elsewhere"
    made = before + head(asked, line, where, b"Content-Length: 0")
    return Answer(kind="odd status", steps=(made,), truth=Truth.OPEN)


def odd_head(rng: random.Random, asked: Asked) -> Answer:
    made = rng.choice(
        (
            rng.randbytes(50) + b"\r\n\r\n",
            b"HTTP/1.1\r\n\r\n",
            b"HTTP/1.1 2000 OK\r\n\r\n",
            b"HTTP/1.1 abc OK\r\n\r\n",
            b"HTTP/3 200 OK\r\n\r\n",
            b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + whole_json(asked),
            b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
            head(asked, b"200 OK", b"Bad Header: x", JSON, b"Content-Length: 2") + b"{}",
            head(asked, b"200 OK", b"Content-Length: 5", b"Content-Length: 6") + b"hello!",
            head(asked, b"200 OK", b"Content-Length: 2", CHUNKED) + END,
            head(asked, b"200 OK", b"Content-Length: -2") + b"{}",
            head(asked, b"200 OK", b"Connection: close, X-Fuzz", JSON, b"Content-Length: 2")
            + b"{}",
            head(asked, b"200 OK", b"Content-Encoding: gzip", SSE, CHUNKED)
            + b"2\r\n\x1f\x8b\r\n"
            + END,
            head(asked, b"200 OK", b"Set-Cookie: a=b", JSON, b"Content-Length: 2") + b"{}",
            head(asked, b"101 Switching Protocols", b"Upgrade: x", b"Connection: upgrade"),
            b"",
        )
    )
    return Answer(kind="odd head", steps=(made, Step.CLOSE), truth=Truth.OPEN)


def wrong_length(rng: random.Random, asked: Asked) -> Answer:
    body = whole_json(asked)
    made = head(asked, b"200 OK", JSON, b"Content-Length: %d" % (len(body) + 9)) + body
    return Answer(kind="short body", steps=(made, Step.CLOSE), truth=Truth.CUT)


def more_than_said(rng: random.Random, asked: Asked) -> Answer:
    """What follows the answer on the connection would be taken for the next one's, by the naive.
    In one write: once the next request is out, nobody could tell."""
    body = whole_json(asked)
    forged = b"HTTP/1.1 200 OK\r\nX-Fuzz: 0\r\nContent-Length: 6\r\n\r\nforged"
    made = head(asked, b"200 OK", JSON, b"Content-Length: %d" % len(body)) + body
    return Answer(
        kind="more than said",
        steps=(made + forged,),
        truth=Truth.SOUND,
        body=body,
        body_without_usage=body,
    )


def no_answer(rng: random.Random, asked: Asked) -> Answer:
    return Answer(kind="no answer", steps=(rng.choice((Step.CLOSE, Step.RESET)),), truth=Truth.OPEN)


def silence(rng: random.Random, asked: Asked) -> Answer:
    before: list[bytes | Step] = []
    if rng.random() < 0.7:
        before.append(head(asked, b"200 OK", SSE, CHUNKED))
    if before and rng.random() < 0.5:
        before.append(b"9\r\ndata: {}\n\r\n")
    return Answer(kind="silence", steps=(*before, Step.SILENCE), truth=Truth.CUT)


Make = Callable[[random.Random, Asked], Answer]
KINDS: dict[Make, float] = {
    sound: 45,
    cut_stream: 10,
    error_event: 6,
    odd_events: 10,
    garbage_body: 5,
    error_status: 8,
    odd_status: 3,
    odd_head: 5,
    wrong_length: 2,
    more_than_said: 3,
    no_answer: 2,
    silence: 0.3,
}
