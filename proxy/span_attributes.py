"""What the spans of a request say, from its record. Knows nothing of OpenTelemetry but its names:
those of the GenAI semantic conventions 0.1.0 (their status is Development) and of the general ones
that they stand on, 1.45.0. What is unknown is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from prefold.backends.backend import Backend
from prefold.measurement.record import RequestOutcome, RequestRecord

Value = str | bool | int | float | tuple[str, ...]

OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "chat",
    "/v1/responses": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}
"""gen_ai.operation.name by path; other paths have no operation, and no CLIENT span."""


def client_attributes(
    record: RequestRecord, operation: str, backend: Backend | None
) -> dict[str, Value]:
    """Of what the backend did. `backend` None: it is gone by now, and known by its name only."""
    waited = None
    if record.streamed and record.first_event is not None and record.chosen is not None:
        waited = record.first_event - record.chosen
    return _known(
        {
            "gen_ai.operation.name": operation,
            "gen_ai.request.model": record.model or None,
            "gen_ai.request.stream": record.streamed or None,
            "gen_ai.usage.input_tokens": record.prompt_tokens,
            "gen_ai.usage.output_tokens": record.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": record.reported_tokens,
            "gen_ai.response.time_to_first_chunk": waited,
            "prefold.backend": record.backend,
            "prefold.cached_tokens.expected": record.expected_tokens,
            "prefold.cached_tokens.available": record.available_tokens,
            "prefold.routing.mode": record.mode or None,
            "prefold.routing.reason": record.reason or None,
            "prefold.attempts": record.attempts or None,
            "prefold.backends.failed": tuple(record.failed_backends) or None,
            **dict(_whereabouts(backend)),
        }
    )


def server_attributes(record: RequestRecord) -> dict[str, Value]:
    """Of the request as its client sees it."""
    return _known(
        {
            "http.route": record.endpoint,
            "http.response.status_code": record.status or None,
            "prefold.outcome": str(record.outcome),
            "prefold.request_id": record.request_id or None,
            "prefold.arm": record.arm,
            "prefold.compression.form": record.compression or None,
            "prefold.compression.removed_tokens": record.removed_tokens,
        }
    )


def backend_failed(record: RequestRecord) -> bool:
    return record.outcome in (RequestOutcome.UPSTREAM_FAILED, RequestOutcome.UPSTREAM_ERROR)


def _whereabouts(backend: Backend | None) -> Iterator[tuple[str, Value]]:
    """The provider is required; of an engine that is not known we know that it speaks this API."""
    engine = None if backend is None else backend.engine
    yield "gen_ai.provider.name", "openai" if engine is None else engine.name
    if backend is not None:
        parts = urlsplit(backend.url)
        yield "server.address", parts.hostname or ""
        yield "server.port", parts.port or (443 if parts.scheme == "https" else 80)


def _known(attributes: dict[str, Value | None]) -> dict[str, Value]:
    return {name: value for name, value in attributes.items() if value is not None}
