"""The surface of the data port: what happens to each path. Paths that are not here get a 404."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Passage(StrEnum):
    PREFIX = "prefix"  # routed by the prefix of its prompt
    LOAD = "load"  # stateless: passed to the least loaded backend that serves the model
    OWN = "own"  # answered by prefold
    REFUSED = "refused"  # 501: its state lives on one backend, or it is no plain HTTP exchange


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    passage: Passage


ROUTES = (
    Route("POST", "/v1/chat/completions", Passage.PREFIX),
    Route("POST", "/v1/completions", Passage.PREFIX),
    Route("GET", "/v1/models", Passage.OWN),
    Route("GET", "/v1/models/{model:.+}", Passage.OWN),
    Route("GET", "/health", Passage.OWN),
    Route("GET", "/ready", Passage.OWN),
    Route("POST", "/v1/embeddings", Passage.LOAD),
    Route("POST", "/v1/rerank", Passage.LOAD),
    Route("POST", "/v1/score", Passage.LOAD),
    Route("POST", "/v1/moderations", Passage.LOAD),
    Route("POST", "/v1/messages", Passage.LOAD),
    Route("POST", "/v1/messages/count_tokens", Passage.LOAD),
    Route("POST", "/v1/audio/speech", Passage.LOAD),
    Route("POST", "/v1/audio/transcriptions", Passage.LOAD),
    Route("POST", "/v1/audio/translations", Passage.LOAD),
    Route("POST", "/v1/images/generations", Passage.LOAD),
    Route("*", "/v1/responses{rest:(/.*)?}", Passage.REFUSED),
    Route("*", "/v1/conversations{rest:(/.*)?}", Passage.REFUSED),
    Route("*", "/v1/files{rest:(/.*)?}", Passage.REFUSED),
    Route("*", "/v1/batches{rest:(/.*)?}", Passage.REFUSED),
    Route("*", "/v1/uploads{rest:(/.*)?}", Passage.REFUSED),
    Route("*", "/v1/vector_stores{rest:(/.*)?}", Passage.REFUSED),
    Route("*", "/v1/fine_tuning{rest:(/.*)?}", Passage.REFUSED),
    Route("*", "/v1/assistants{rest:(/.*)?}", Passage.REFUSED),
    Route("*", "/v1/threads{rest:(/.*)?}", Passage.REFUSED),
    Route("*", "/v1/containers{rest:(/.*)?}", Passage.REFUSED),
    Route("*", "/v1/evals{rest:(/.*)?}", Passage.REFUSED),
    Route("*", "/v1/videos{rest:(/.*)?}", Passage.REFUSED),
    Route("*", "/v1/realtime{rest:(/.*)?}", Passage.REFUSED),
    Route("GET", "/v1/chat/completions{rest:(/.*)?}", Passage.REFUSED),
)
