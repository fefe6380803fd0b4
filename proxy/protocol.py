"""The forms in which a path speaks: how its streams are read, its errors written, its usage told.

Three protocols are understood; what passes in any other form is `OPAQUE`, and only its framing and
its status are judged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from prefold.backends.engine import Timings, Usage
from prefold.proxy import messages, responses
from prefold.proxy.chunks import ChunkMeter
from prefold.proxy.errors import ApiError
from prefold.proxy.messages import MessagesMeter, MessagesUsage
from prefold.proxy.meter import Meter
from prefold.proxy.responses import ResponsesMeter, ResponsesUsage


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer that is not streamed says of itself."""

    usage: Usage | None = None
    timings: Timings | None = None
    error: Any = None
    """In place of an answer."""
    failed: bool = False
    """It is no answer, in whatever form it says so."""
    response_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """`meter` takes whether the usage chunk is to be stripped; None: streams are not understood.
    `cut` makes the last event of a stream that failed, `wrong` the body of an error."""

    meter: Callable[[bool], Meter] | None
    read: Callable[[bytes], Whole]
    wrong: Callable[[ApiError], bytes]
    cut: Callable[[Meter | None, ApiError], bytes]


class _Completion(msgspec.Struct):
    usage: Usage | None = None
    timings: Timings | None = None
    error: Any = None
    object: Any = None
    code: Any = None


class _Message(msgspec.Struct):
    usage: MessagesUsage | None = None
    error: Any = None


class _Response(msgspec.Struct):
    usage: ResponsesUsage | None = None
    error: Any = None
    id: Any = None
    object: Any = None
    status: Any = None


def _decode(body: bytes, kind: type[msgspec.Struct]) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return kind()


def _completion(body: bytes) -> Whole:
    seen = _decode(body, _Completion)
    # Older servers say it flat: {"object": "error", "message": ..., "code": ...}.
    error = {"code": seen.code} if seen.object == "error" else seen.error
    return Whole(usage=seen.usage, timings=seen.timings, error=error, failed=error is not None)


def _message(body: bytes) -> Whole:
    seen = _decode(body, _Message)
    return Whole(
        usage=seen.usage.usage() if seen.usage is not None else None,
        error=seen.error,
        failed=seen.error is not None,
    )


def _response(body: bytes) -> Whole:
    seen = _decode(body, _Response)
    return Whole(
        usage=seen.usage.usage() if seen.usage is not None else None,
        # A response that failed is an answer all the same: it has an id, and a status.
        error=seen.error if seen.object != "response" else None,
        failed=seen.error is not None or seen.status == "failed",
        response_id=seen.id if isinstance(seen.id, str) else None,
    )


def _anthropic_kind(error: ApiError) -> str:
    """https://docs.anthropic.com/en/api/errors"""
    named = {
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        503: "overloaded_error",
        504: "timeout_error",
    }
    return named.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")


CHUNKS = Protocol(
    meter=lambda strip_usage: ChunkMeter(strip_usage=strip_usage),
    read=_completion,
    wrong=lambda error: error.body(),
    cut=lambda meter, error: b"data: " + error.body() + b"\n\n",
)
OPAQUE = Protocol(meter=None, read=_completion, wrong=CHUNKS.wrong, cut=CHUNKS.cut)
MESSAGES = Protocol(
    meter=lambda strip_usage: MessagesMeter(),
    read=_message,
    wrong=lambda error: messages.error_body(error.message, _anthropic_kind(error)),
    cut=lambda meter, error: messages.error_event(error.message, _anthropic_kind(error)),
)
RESPONSES = Protocol(
    meter=lambda strip_usage: ResponsesMeter(),
    read=_response,
    wrong=CHUNKS.wrong,
    cut=lambda meter, error: responses.error_event(
        error.message, error.code, meter.next_number if isinstance(meter, ResponsesMeter) else 0
    ),
)


def protocol_of(path: str) -> Protocol:
    """By the path of a request; streams of paths that are not named here are not understood."""
    if path in ("/v1/chat/completions", "/v1/completions"):
        return CHUNKS
    if path.startswith("/v1/messages"):
        return MESSAGES
    return RESPONSES if path == "/v1/responses" or path.startswith("/v1/responses/") else OPAQUE


class Relayed(ApiError):
    """An error of the backend in some other shape, told in the shape of the path's protocol."""

    def __init__(self, status: int, message: str, code: str | None) -> None:
        super().__init__(message, code=code)
        self.status = status
        self.kind = "server_error" if status >= 500 else "invalid_request_error"


def normalised(protocol: Protocol, status: int, body: bytes) -> bytes | None:
    """The body of an error answer in the shape that clients understand; None if it is in it."""
    seen = _decode_any(body)
    if isinstance(seen, dict) and isinstance(seen.get("error"), dict):
        return None
    return protocol.wrong(error_of(status, body))


def error_of(status: int, body: bytes) -> Relayed:
    """What an error answer says, in whatever shape."""
    seen = _decode_any(body)
    if not isinstance(seen, dict):
        seen = {}
    error = seen.get("error")
    if isinstance(error, dict):
        seen = error
    places = (error, seen.get("message"), seen.get("detail"))  # a bare text, OpenAI's, FastAPI's
    said = next((text for text in places if isinstance(text, str)), None)
    code = seen.get("code")
    message = said or f"The backend answered {status}."
    return Relayed(status, message, code if isinstance(code, str) else None)


def _decode_any(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
