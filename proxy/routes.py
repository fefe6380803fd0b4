"""The surface of the data port: what happens to each path. Paths that are not here get a 404."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from prefold.proxy.messages import MessagesBody
from prefold.proxy.openai import Body, ChatBody, CompletionBody
from prefold.proxy.responses import ResponsesBody


class Passage(StrEnum):
    PREFIX = "prefix"  # routed by the prefix of its prompt
    LOAD = "load"  # stateless: passed to the least loaded backend that serves the model
    PINNED = "pinned"  # to the backend that made the response it names
    STATEFUL = "stateful"  # to the one backend that the settings name for state, else refused
    OWN = "own"  # answered by prefold
    REFUSED = "refused"  # 501: no plain HTTP exchange


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    passage: Passage
    body: type[Body] | None = None
    """Of a path that is routed by prefix."""


def _load(*paths: str) -> tuple[Route, ...]:
    return tuple(Route("POST", path, Passage.LOAD) for path in paths)


def _stateful(*names: str) -> tuple[Route, ...]:
    return tuple(Route("*", f"/v1/{name}{{rest:(/.*)?}}", Passage.STATEFUL) for name in names)


ROUTES = (
    Route("POST", "/v1/chat/completions", Passage.PREFIX, ChatBody),
    Route("POST", "/v1/completions", Passage.PREFIX, CompletionBody),
    Route("POST", "/v1/responses", Passage.PREFIX, ResponsesBody),
    Route("POST", "/v1/messages", Passage.PREFIX, MessagesBody),
    Route("GET", "/v1/models", Passage.OWN),
    Route("GET", "/v1/models/{model:.+}", Passage.OWN),
    Route("GET", "/health", Passage.OWN),
    Route("GET", "/ready", Passage.OWN),
    *_load(
        "/v1/embeddings",
        "/v1/rerank",
        "/rerank",
        "/v1/score",
        "/score",
        "/v1/moderations",
        "/tokenize",
        "/detokenize",
        "/v1/chat/completions/render",
        "/v1/messages/count_tokens",
        "/v1/responses/input_tokens",
        "/v1/audio/speech",
        "/v1/audio/transcriptions",
        "/v1/audio/translations",
        "/v1/images/generations",
        "/v1/images/edits",
    ),
    Route("GET", "/v1/responses/{response}", Passage.PINNED),
    Route("DELETE", "/v1/responses/{response}", Passage.PINNED),
    Route("POST", "/v1/responses/{response}/cancel", Passage.PINNED),
    Route("GET", "/v1/responses/{response}/input_items", Passage.PINNED),
    *_stateful(
        "files",
        "batches",
        "uploads",
        "conversations",
        "vector_stores",
        "fine_tuning",
        "assistants",
        "threads",
        "containers",
        "evals",
        "videos",
    ),
    Route("GET", "/v1/chat/completions{rest:(/.*)?}", Passage.STATEFUL),
    Route("DELETE", "/v1/chat/completions{rest:/.*}", Passage.STATEFUL),
    Route("*", "/v1/realtime{rest:(/.*)?}", Passage.REFUSED),
)
