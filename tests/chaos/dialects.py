"""What is asked of a kind of backend, and how its answer is known to be whole."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from tests.chaos.script import WORDS, Wanted, text

Answered = Callable[[list[Any]], bool]
"""Of the events of a stream, or of the one object of a whole answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    body: dict[str, Any]
    status: int
    answered_by: Answered


class Dialect(Protocol):
    def ask(self, rng: random.Random, *, streamed: bool, long: bool, status: int) -> Ask:
        """`long`: more than fits into the buffers on the way. `status`: what it is to answer."""


def messages(rng: random.Random) -> list[dict[str, str]]:
    """One of a few long shared beginnings, and a question of its own."""
    shared = random.Random(rng.randrange(8))
    system = " ".join(shared.choices(WORDS, k=150))
    question = " ".join(rng.choices(WORDS, k=12))
    return [{"role": "system", "content": system}, {"role": "user", "content": question}]


class Scripted:
    """`llm_server`: the text is known before it is asked for."""

    def __init__(self, models: list[str]) -> None:
        self._models = models

    def ask(self, rng: random.Random, *, streamed: bool, long: bool, status: int) -> Ask:
        wanted = Wanted(
            seed=rng.randrange(2**31),
            tokens=80 if long else rng.randrange(1, 80),
            pace_ms=1.0 if long else rng.choice((1.0, 5.0, 20.0)),
            pad=4000 if long else rng.choice((0, 0, 200)),
            status=status,
        )
        body = {
            "model": rng.choice(self._models),
            "messages": messages(rng),
            "stream": streamed,
            "chaos": msgspec.to_builtins(wanted),
        }
        expected = text(wanted)
        return Ask(
            body=body, status=status, answered_by=lambda events: content_of(events) == expected
        )


class LlamaCpp:
    """Its text is its own, but it counts its tokens, and tells the probability of each: as many as
    were asked for."""

    def __init__(self, model: str) -> None:
        self._model = model

    def ask(self, rng: random.Random, *, streamed: bool, long: bool, status: int) -> Ask:
        tokens = 200 if long else rng.randrange(1, 40)
        body = {
            "model": self._model,
            "messages": messages(rng),
            "stream": streamed,
            "max_tokens": tokens,
            "logprobs": True,
            "top_logprobs": 1,
            "ignore_eos": True,  # the end token is counted, and never sent
        }
        if status != 200:
            body["messages"] = [{"role": "user", "content": [{"type": "unheard of"}]}]
            status = 400
        return Ask(body=body, status=status, answered_by=every_token_is_here)


def content_of(events: list[Any]) -> str:
    choices = [choice for event in events for choice in event["choices"]]
    parts = [choice.get("delta") or choice.get("message") or {} for choice in choices]
    return "".join(part.get("content") or "" for part in parts)


def every_token_is_here(events: list[Any]) -> bool:
    """As many tokens as the engine counted, and a reason to finish."""
    choices = [choice for event in events for choice in event["choices"]]
    tokens = sum(len((choice.get("logprobs") or {}).get("content") or ()) for choice in choices)
    counted = [event["timings"]["predicted_n"] for event in events if "timings" in event]
    finished = any(choice.get("finish_reason") for choice in choices)
    return finished and bool(counted) and tokens == counted[-1]
