"""What differs between LLM servers, as one protocol with an adapter for each engine.

An adapter asks; it keeps no state and decides nothing. Facts it cannot learn are None.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from prefold.backends.client import Client
from prefold.backends.errors import BackendError
from prefold.backends.kv_events.subscriber import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCapacity:
    """llama.cpp: each of `slots` holds one sequence of at most `context_tokens`."""

    slots: int
    context_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCapacity:
    """vLLM and its like: one pool of `blocks` KV cache blocks of `block_tokens` each."""

    blocks: int
    block_tokens: int


@dataclass(frozen=True, slots=True)
class NoPrefixCache:
    """The engine keeps no prefixes: it computes every prompt whole."""


Capacity = SlotCapacity | BlockCapacity | NoPrefixCache


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """`tokenizer_source` is where the engine itself loaded the model from, if it says; `card` is
    its entry in the engine's /v1/models."""

    id: str
    tokenizer_source: str | None = None
    # Not compared: llama.cpp puts the present time into `created`.
    card: dict[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What an engine said when it was found ready. Loads are requests; None where not told. Of a
    data-parallel rank, capacity and loads are its own."""

    models: tuple[ServedModel, ...]
    capacity: Capacity | None = None
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    """Share of its KV cache that requests under way hold, 0 to 1."""
    preemptions: int | None = None
    """Requests whose memory it took back since it started, to compute them again."""
    started: float | None = None
    """When its process started, by its own clock."""
    prompt_tokens_total: int | None = None
    """It has computed so many since it started."""
    version: str | None = None
    ranks: int | None = None
    """Data-parallel ranks behind its URL, each with a KV cache of its own."""
    reports_cached: bool | None = None
    """Whether its usage tells cached tokens; None: only an answer shows it."""
    advice: tuple[str, ...] = ()
    """What to change so that more is known of it, a sentence each."""


def began_anew(before: EngineFacts, now: EngineFacts) -> bool:
    """Whether these are of two processes: by their start, or by what they have done so far."""
    if before.started is not None and now.started is not None:
        return before.started != now.started
    if before.prompt_tokens_total is None or now.prompt_tokens_total is None:
        return False
    return now.prompt_tokens_total < before.prompt_tokens_total


class PromptReport(msgspec.Struct, frozen=True, kw_only=True):
    """Prefill as the engine itself reported it, in tokens and seconds; None where it did not."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    prefill_s: float | None = None


class PromptTokensDetails(msgspec.Struct):
    cached_tokens: int | None = None
    image_tokens: int | None = None
    audio_tokens: int | None = None
    video_tokens: int | None = None


class Usage(msgspec.Struct):
    """OpenAI's `usage` object: the members that are read."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptTokensDetails | None = None


class Timings(msgspec.Struct):
    """llama.cpp's `timings`: cache_n + prompt_n is the prompt, prompt_ms the prefill's time."""

    cache_n: int | None = None
    prompt_n: int | None = None
    prompt_ms: float | None = None
    predicted_n: int | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an adapter asks: one backend's address with its credentials."""

    client: Client
    url: str
    headers: dict[str, str]
    timeout_s: float
    ssl: ssl.SSLContext | None = None
    rank: int | None = None
    """The data-parallel rank that is asked about; None: the server as a whole."""

    async def get(self, path: str) -> tuple[int, bytes]:
        return await self._fetch("GET", path)

    async def post(self, path: str, json: Any) -> tuple[int, bytes]:
        return await self._fetch("POST", path, json)

    async def get_json(self, path: str) -> Any:
        """The decoded body of a 200, None for every other status; BackendError if undecodable."""
        status, body = await self.get(path)
        return _decode(body) if status == 200 else None

    async def post_json(self, path: str, json: Any) -> Any:
        status, body = await self.post(path, json)
        return _decode(body) if status == 200 else None

    async def _fetch(self, method: str, path: str, json: Any = None) -> tuple[int, bytes]:
        return await self.client.fetch(
            method,
            self.url + path,
            headers=self.headers,
            timeout_s=self.timeout_s,
            json=json,
            ssl=self.ssl,
        )


class Engine(Protocol):
    """One adapter for each kind of server."""

    name: str
    needs_include_usage: bool
    """True if a stream reports usage only when `stream_options.include_usage` asks for it."""
    knows_cache_salt: bool
    """True if a request's `cache_salt` keeps its KV cache blocks apart from those of others."""
    reporting: str
    """How it reports cached tokens, for people."""

    async def probe(self, endpoint: Endpoint) -> EngineFacts | None:
        """Facts if the engine is ready to serve, None if it is not (yet); raises BackendError."""

    async def chat_tokens(
        self, endpoint: Endpoint, model: str, messages: Sequence[dict[str, str]]
    ) -> list[int] | None:
        """The ids the engine makes of a chat, None if it cannot tell; raises BackendError."""

    async def event_source(self, endpoint: Endpoint) -> Source:
        """Where it says that its KV events are to be had; raises NoEvents, and BackendError."""

    def report(self, usage: Usage | None, timings: Timings | None) -> PromptReport:
        """Reported prefill out of a response. Unknown is None, never zero."""


def require_rank(rank: int | None, ranks: int) -> None:
    """Raises BackendError for a rank that is not there: requests to it would be refused."""
    if rank is not None and rank >= ranks:
        raise BackendError(f"no data-parallel rank {rank}: the engine has {ranks}")


def rank_advice(rank: int | None, ranks: int) -> tuple[str, ...]:
    if rank is not None or ranks <= 1:
        return ()
    return (f"{ranks} KV caches are behind its URL: set data_parallel = {ranks}",)


def report_from_usage(usage: Usage | None) -> PromptReport:
    if usage is None:
        return PromptReport()
    details = usage.prompt_tokens_details
    return PromptReport(
        prompt_tokens=count(usage.prompt_tokens),
        cached_tokens=None if details is None else count(details.cached_tokens),
        completion_tokens=count(usage.completion_tokens),
    )


def count(tokens: int | None) -> int | None:
    """A negative count is none, nor is one that not every reader of JSON takes for an integer."""
    return tokens if tokens is not None and 0 <= tokens < 2**53 else None


async def listed_models(endpoint: Endpoint) -> tuple[dict[str, Any], ...] | None:
    """The `data` entries of GET /v1/models that carry an id; None if it is not served."""
    answer = await endpoint.get_json("/v1/models")
    if not isinstance(answer, dict) or not isinstance(answer.get("data"), list):
        return None
    return tuple(
        entry
        for entry in answer["data"]
        if isinstance(entry, dict) and isinstance(entry.get("id"), str)
    )


def int_list(value: Any) -> list[int] | None:
    if isinstance(value, list) and all(isinstance(item, int) for item in value):
        return value
    return None


def _decode(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BackendError("the backend's answer is not JSON") from error
