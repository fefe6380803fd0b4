"""Request bodies: valid ones of each protocol, and what can become of them. Pure, from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

WORDS = (
    "hello",
    " and",
    "Zürich",
    "日本",
    "🙂",
    "\u200b",
    "12",
    "\t",
    "<|im_start|>",
    "\\",
    '"',
    "",
)
WILD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    2**63,
    -(2**70),
    1e308,
    0.1,
    "",
    "x" * 2000,
    [],
    {},
    [[]],
    [None],
    {"a": {"b": {"c": []}}},
    "\u0000",
    [[[[[[[[[[1]]]]]]]]]],
)
RAW_VALUES = (
    b"NaN",
    b"Infinity",
    b"1e999",
    b"-0",
    b"01",
    b"1" * 400,
    b'"\\ud800"',
    b'"\\u0000"',
    b'"\\x"',
    b'"\xff"',
    b"[" * 70 + b"]" * 70,
    b"",
    b"tru",
    b"{}{}",
)
MEMBERS = (
    "model",
    "messages",
    "prompt",
    "input",
    "stream",
    "stream_options",
    "tools",
    "n",
    "best_of",
    "max_tokens",
    "system",
    "instructions",
    "cache_salt",
    "previous_response_id",
    "conversation",
    "suffix",
    "documents",
    "reasoning_effort",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "truncate_prompt_tokens",
    "temperature",
    "unknown_member",
)


def text(rng: random.Random) -> str:
    return "".join(rng.choices(WORDS, k=rng.choice((0, 1, 5, 30))))


def part(rng: random.Random) -> dict[str, Any]:
    return rng.choice(
        (
            {"type": "text", "text": text(rng)},
            {"type": "input_text", "text": text(rng)},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 300}},
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            {"type": "tool_use", "id": "t1", "name": "f", "input": {}},
            {"type": rng.choice(WILD), "text": rng.choice(WILD)},
        )
    )


def content(rng: random.Random) -> Any:
    if rng.random() < 0.7:
        return text(rng)
    return [part(rng) for _ in range(rng.randrange(4))]


def message(rng: random.Random) -> dict[str, Any]:
    made = {
        "role": rng.choice(("user", "user", "system", "assistant", "tool", "developer", "x")),
        "content": content(rng),
    }
    if rng.random() < 0.1:
        call = {"name": "f", "arguments": rng.choice(('{"a":1}', "{", ""))}
        made["tool_calls"] = [{"id": "c", "type": "function", "function": call}]
    return made


def messages(rng: random.Random) -> list[dict[str, Any]]:
    return [message(rng) for _ in range(rng.choice((0, 1, 1, 2, 3, 8)))]


def chat(rng: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {"messages": messages(rng)}
    if rng.random() < 0.1:
        schema = {"type": "object", "properties": {"a": {"type": "string"}}}
        made["tools"] = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    if rng.random() < 0.2:
        made["stream_options"] = {"include_usage": rng.choice((True, False, None))}
    return made


def completion(rng: random.Random) -> dict[str, Any]:
    ids = [rng.randrange(-1, 300) for _ in range(rng.randrange(20))]
    prompt: Any = rng.choice((text(rng), [text(rng)], ids, [ids, ids], [], [text(rng), ids]))
    return {"prompt": prompt}


def responses(rng: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {"input": rng.choice((text(rng), messages(rng)))}
    if rng.random() < 0.2:
        made["instructions"] = text(rng)
    if rng.random() < 0.1:
        made["previous_response_id"] = "resp_1"
    return made


def anthropic(rng: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {"messages": messages(rng), "max_tokens": 5}
    if rng.random() < 0.3:
        made["system"] = rng.choice((text(rng), [part(rng)]))
    return made


Body = Callable[[random.Random], dict[str, Any]]
BODIES: dict[str, Body] = {
    "/v1/chat/completions": chat,
    "/v1/completions": completion,
    "/v1/responses": responses,
    "/v1/messages": anthropic,
}


def valid(rng: random.Random, path: str) -> dict[str, Any]:
    """As a client might send it; with the members that all protocols share."""
    made = BODIES[path](rng)
    made["model"] = rng.choice(("m", "m", "m", "alias"))
    if rng.random() < 0.6:
        made["stream"] = True
    return made


def with_wild_member(rng: random.Random, body: dict[str, Any]) -> dict[str, Any]:
    """One value, at the top or somewhere below, becomes another one."""
    body = dict(body)
    key = rng.choice((*body, rng.choice(MEMBERS)))
    inner = body.get(key)
    if isinstance(inner, list) and inner and isinstance(inner[0], dict) and rng.random() < 0.5:
        first = dict(inner[0])
        first[rng.choice((*first, "content", "role"))] = rng.choice(WILD)
        body[key] = [first, *inner[1:]]
    else:
        body[key] = rng.choice(WILD)
    return body


def encoded(rng: random.Random, body: dict[str, Any]) -> bytes:
    """In one of the ways in which JSON can be written."""
    style = rng.randrange(4)
    made = json.dumps(
        body,
        ensure_ascii=style == 0,
        indent=1 if style == 1 else None,
        separators=(",", ":") if style == 2 else None,
    )
    return made.encode("utf-8", "surrogatepass")


def with_raw_member(rng: random.Random, raw: bytes) -> bytes:
    """A member that no JSON library would write, at the front: perhaps a second one of its name."""
    key = rng.choice((*MEMBERS, "m\\u006fdel")).encode()
    return raw.replace(b"{", b'{"' + key + b'":' + rng.choice(RAW_VALUES) + b",", 1)


def damaged(rng: random.Random, raw: bytes) -> bytes:
    """A few bytes lost, doubled, swapped or replaced; or the rest cut off."""
    data = bytearray(raw)
    for _ in range(rng.randrange(1, 4)):
        if not data:
            break
        at = rng.randrange(len(data))
        match rng.randrange(5):
            case 0:
                del data[at : at + rng.randrange(1, 8)]
            case 1:
                data[at:at] = data[at : at + rng.randrange(1, 40)]
            case 2:
                data[at] = rng.randrange(256)
            case 3:
                data[at:at] = rng.choice(
                    (b"{", b"}", b'"', b"\\", b",", b"\x00", b"\xf0\x9f", b"[")
                )
            case _:
                del data[at:]
    return bytes(data)


def body(rng: random.Random, path: str) -> tuple[str, bytes]:
    """A body of some class, by name, for one of the paths of `BODIES`."""
    made = valid(rng, path)
    [kind] = rng.choices(("valid", "wild", "raw member", "damaged", "garbage"), (60, 15, 7, 15, 3))
    if kind == "wild":
        made = with_wild_member(rng, made)
    raw = encoded(rng, made)
    if kind == "raw member":
        raw = with_raw_member(rng, raw)
    elif kind == "damaged":
        raw = damaged(rng, raw)
    elif kind == "garbage":
        raw = rng.randbytes(rng.randrange(200))
    return kind, raw
