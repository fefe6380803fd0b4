"""Requests to send: bodies of the OpenAI API, made from a trace's block ids or read from a file.

A trace holds no text. Equal block ids become equal text, so prompts share the beginnings that the
trace says they share, and nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from prefold.proxy.simulate.trace import Request, Trace

FIRST_ID, IDS = 1000, 20_000
"""Token ids are drawn from here: ordinary ones in every vocabulary of today's models."""
_COMMON = (
    "the of and to in is that for it was on are as with his they at be this from have or by one"
    " had not but what all were when we there can an your which their said if do will each about"
    " how up out them then she many some so these would other into has more her two like him see"
    " time could no make than first been its who now people my made over did down only way find"
    " use may water long little very after words called just where most know"
)
WORDS = _COMMON.split()
"""Each is one token or little more in common vocabularies."""


class Form(StrEnum):
    """What is sent of a trace's request."""

    CHAT = "chat"  # one user message of words, about as many as tokens
    COMPLETIONS = "completions"  # the same as a text completion
    TOKENS = "tokens"  # a completion of token ids, exactly as many


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """`at_s`: when the trace says it arrives, from its first request on; None: it does not say."""

    path: str
    body: dict[str, Any]
    at_s: float | None = None


class ReplayError(Exception):
    """What is to be replayed cannot be; the message says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    form: Form
    model: str
    salt: str
    """Stands before every prompt, so that no cache holds any of it from before; "": nothing."""
    max_tokens: int | None
    """Of an answer, where the trace asks for more; None: what the trace asks for."""
    ignore_eos: bool
    """Ask vLLM and its like for answers of the full length."""


def planned(trace: Trace, requests: Sequence[Request], shape: Shape) -> Iterator[Planned]:
    for number, request in enumerate(requests):
        limit = shape.max_tokens
        wanted = max(request.output_tokens, 1)
        body: dict[str, Any] = {
            "model": shape.model,
            "max_tokens": wanted if limit is None else min(wanted, limit),
            "temperature": 0,
        }
        if shape.ignore_eos:
            body["ignore_eos"] = True
        path = "/v1/completions"
        if shape.form is Form.TOKENS:
            body["prompt"] = _ids(request, number, trace.block_tokens, shape.salt)
        else:
            text = _text(request, number, trace.block_tokens, shape.salt)
            if shape.form is Form.CHAT:
                path = "/v1/chat/completions"
                body["messages"] = [{"role": "user", "content": text}]
            else:
                body["prompt"] = text
        yield Planned(path=path, body=body, at_s=request.arrival_s)


def _text(request: Request, number: int, block_tokens: int, salt: str) -> str:
    blocks, rest = _parts(request, block_tokens)
    words = [_words(key, block_tokens) for key in blocks]
    words.append(" ".join(_random("rest", key=number).choices(WORDS, k=rest)))
    return " ".join(([f"[{salt}]"] if salt else []) + [part for part in words if part])


def _ids(request: Request, number: int, block_tokens: int, salt: str) -> list[int]:
    """The salt takes the place of the first block's first ids."""
    blocks, rest = _parts(request, block_tokens)
    ids = [token for key in blocks for token in _block_ids(key, block_tokens)]
    ids += _some_ids(_random("rest", key=number), rest)
    if salt:
        head = _some_ids(random.Random(f"salt {salt}"), 8)
        ids[: len(head)] = head[: len(ids)]
    return ids


def _parts(request: Request, block_tokens: int) -> tuple[Sequence[int], int]:
    blocks = request.prefix.chain(block_tokens)
    return blocks, request.prompt_tokens - len(blocks) * block_tokens


@lru_cache(maxsize=4096)
def _words(key: int, count: int) -> str:
    return " ".join(_random("block", key=key).choices(WORDS, k=count))


@lru_cache(maxsize=4096)
def _block_ids(key: int, count: int) -> tuple[int, ...]:
    return tuple(_some_ids(_random("block", key=key), count))


def _some_ids(source: random.Random, count: int) -> list[int]:
    return [FIRST_ID + source.randrange(IDS) for _ in range(count)]


def _random(what: str, *, key: int) -> random.Random:
    return random.Random(f"prefold replay {what} {key}")


class _Line(msgspec.Struct):
    body: dict[str, Any] | None = None
    timestamp: float | None = None
    path: str | None = None
    messages: Any = None
    prompt: Any = None


def read_requests(path: Path, *, model: str) -> list[Planned]:
    """One JSON object a line: a body as clients send it, or {"body", "timestamp" in milliseconds,
    "path"}. `model` replaces theirs, unless it is "". Raises ReplayError."""
    found = []
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    found.append(_request(line, model, f"{path.name}:{number}"))
    except OSError as error:
        raise ReplayError(f"{path.name}: {error.strerror}") from None
    if not found:
        raise ReplayError(f"{path.name}: no requests")
    return found


def _request(line: bytes, model: str, where: str) -> Planned:
    try:
        told = msgspec.json.decode(line, type=_Line)
        body = told.body if told.body is not None else msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReplayError(f"{where}: {error}") from None
    if "messages" not in body and "prompt" not in body:
        raise ReplayError(f"{where}: neither `messages` nor `prompt`")
    if model:
        body["model"] = model
    usual = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    at_s = None if told.timestamp is None else told.timestamp / 1000
    return Planned(path=told.path or usual, body=body, at_s=at_s)
