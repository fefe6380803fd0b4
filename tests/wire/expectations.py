"""What a case expects, held against what was played. Each check says what is wrong, or nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.support.sse_model import whole_events
from tests.wire.cases import Case, as_bytes
from tests.wire.raw_client import BodyEnd, RawAnswer
from tests.wire.requests import CHAT
from tests.wire.script import answers, until_done
from tests.wire.stage import Played

FIELDS = frozenset(
    (
        "relay",
        "status",
        "error_object",
        "error",
        "headers",
        "lacks_headers",
        "answered_by",
        "body",
        "upstream_attempts",
        "upstream_sees",
        "upstream_lacks",
        "upstream_path",
        "upstream_body",
        "outcome",
        "breaker",
        "text",
        "finish",
        "clients",
        "closes",
    )
)


def wrong_in_raw(case: Case, played: Played) -> list[str]:
    """Every way in which the raw answer is not what the case expects."""
    unknown = case.expected.keys() - FIELDS
    if unknown:
        return [f"unknown expectations {sorted(unknown)}"]
    if played.answer is None:
        return ["the connection ended without an answer"]
    return [*_general(played.answer), *_answer(case, played.answer), *_behind(case, played)]


def _general(answer: RawAnswer) -> Iterator[str]:
    """What holds for every answer."""
    if answer.status == 500 and b'"Internal error."' in answer.body:
        yield "an internal error of the proxy's own"
    if answer.status >= 200 and answer.header("x-request-id") is None:
        yield "no X-Request-Id"
    names = [name for name, _ in answer.headers]
    if "transfer-encoding" in names and "content-length" in names:
        yield "both lengths in the answer"
    if (answer.header("content-type") or "").startswith("text/event-stream"):
        if answer.header("connection") == "close":
            yield "Connection: close on a stream, with which Node takes a cut for an end"
        if "content-length" in names:
            yield "a stream with a Content-Length"


def _answer(case: Case, answer: RawAnswer) -> Iterator[str]:
    expected = case.expected
    given = answers(case.input)[expected.get("answered_by", 1) - 1]
    relay = expected.get("relay")
    status = expected.get("status", given.status if relay else None)
    if status is not None and answer.status != status:
        yield f"status {answer.status}, not {status}"
    if relay is not None:
        yield from RELAYS[relay](case, answer, given.payload)
    if expected.get("body") == "upstream" and answer.body != given.payload:
        yield f"the body is not the upstream's: {answer.body[:200]!r}"
    if expected.get("error_object"):
        yield from _error_object(case, answer)
    for name, value in expected.get("headers", {}).items():
        if answer.header(name) != value:
            yield f"{name} is {answer.header(name)!r}, not {value!r}"
    if expected.get("closes") and answer.header("connection") != "close":
        yield "the connection is not told to end"
    if expected.get("closes") == "awaited" and not answer.closed:
        yield "the connection stays open"
    for name in expected.get("lacks_headers", ()):
        if answer.header(name) is not None:
            yield f"{name} is there"


def _identical(case: Case, answer: RawAnswer, payload: bytes) -> Iterator[str]:
    if answer.body != payload:
        yield f"the payload differs: {_difference(answer.body, payload)}"
    if answer.end is not BodyEnd.WHOLE:
        yield f"the body is {answer.end}"


def _until_done(case: Case, answer: RawAnswer, payload: bytes) -> Iterator[str]:
    """Nothing after [DONE], and a proper end."""
    yield from _identical(case, answer, until_done(payload))


def _prefix(case: Case, answer: RawAnswer, payload: bytes) -> Iterator[str]:
    """The whole events of the upstream's, one error event of the path's protocol, an abort."""
    kept = b"".join(whole_events(payload))
    if not answer.body.startswith(kept):
        yield f"whole events are missing or changed: {_difference(answer.body, kept)}"
        return
    if answer.end is not BodyEnd.ABORTED:
        yield f"the body is {answer.end}, not aborted"
    yield from wrong_in_error_event(case.input.get("path", CHAT), answer.body[len(kept) :])


def wrong_in_error_event(path: str, event: bytes) -> Iterator[str]:
    """One event, in the protocol of the path."""
    if len(whole_events(event)) != 1 or whole_events(event)[0] != event:
        yield f"no single error event at the end: {event[:200]!r}"
        return
    name, _, data = event.rpartition(b"data: ")
    try:
        told = json.loads(data)
    except ValueError:
        yield f"the error event is not JSON: {event[:200]!r}"
        return
    if path == "/v1/responses":
        members = {"type", "code", "message", "param", "sequence_number"}
        right = name == b"event: error\n" and set(told) == members and told["type"] == "error"
    elif path == "/v1/messages":
        right = name == b"event: error\n" and _is_messages_error(told)
    else:
        right = name == b"" and set(told) == {"error"} and _is_error(told["error"])
    if not right:
        yield f"not this protocol's error event: {event[:200]!r}"


RELAYS: Mapping[str, Callable[[Case, RawAnswer, bytes], Iterator[str]]] = {
    "payload-identical": _identical,
    "until-done": _until_done,
    "prefix": _prefix,
}


def _error_object(case: Case, answer: RawAnswer) -> Iterator[str]:
    """The path's own shape, in an answer that is whole; `own`: with all of OpenAI's members."""
    if answer.end is not BodyEnd.WHOLE or answer.header("content-type") is None:
        yield f"the error's body is {answer.end}"
        return
    if not (answer.header("content-type") or "").startswith("application/json"):
        yield f"an error as {answer.header('content-type')}"
    try:
        told = answer.json()
    except ValueError:
        yield f"an error that is not JSON: {answer.body[:200]!r}"
        return
    messages = case.input.get("path", CHAT).startswith("/v1/messages")
    own = case.expected.get("error_object") == "own"
    if not (_is_messages_error(told) if messages else _has_error(told, own)):
        yield f"not an error object: {answer.body[:200]!r}"
        return
    for key, value in (case.expected.get("error") or {}).items():
        if told["error"].get(key) != value:
            yield f"error.{key} is {told['error'].get(key)!r}, not {value!r}"


def _has_error(told: Any, own: bool) -> bool:
    return isinstance(told, dict) and _is_error(told.get("error"), own)


def _is_error(error: Any, own: bool = True) -> bool:
    members = {"message", "type", "param", "code"} if own else {"message"}
    return isinstance(error, dict) and set(error) >= members and bool(error["message"])


def _is_messages_error(told: Any) -> bool:
    return (
        isinstance(told, dict)
        and told.get("type") == "error"
        and isinstance(told.get("error"), dict)
        and {"type", "message"} <= set(told["error"])
    )


def _behind(case: Case, played: Played) -> Iterator[str]:
    """What the upstream and the books saw."""
    expected, received = case.expected, played.received
    attempts = expected.get("upstream_attempts")
    if attempts is not None and len(received) != attempts:
        yield f"{len(received)} upstream attempts, not {attempts}"
    for request in received:
        for name, value in expected.get("upstream_sees", {}).items():
            if request.headers.get(name.lower()) != value:
                yield f"the upstream saw {name}: {request.headers.get(name.lower())!r}"
        for name in expected.get("upstream_lacks", ()):
            if name.lower() in request.headers:
                yield f"the upstream saw {name}"
        if "upstream_path" in expected and request.path != expected["upstream_path"]:
            yield f"the upstream saw the path {request.path}"
        yield from _body_upstream(case, played, request.body)
    if "outcome" in expected and list(played.outcomes) != [expected["outcome"]]:
        yield f"counted as {list(played.outcomes)}, not {expected['outcome']}"
    if "breaker" in expected:
        struck = [name for name, state in played.states.items() if state != "up"]
        if bool(struck) != (expected["breaker"] == "struck"):
            yield f"breaker: {dict(played.states)}, expected {expected['breaker']}"


def _body_upstream(case: Case, played: Played, body: bytes) -> Iterator[str]:
    """`byte-identical`: to the client's; else it stands in the case."""
    wanted = case.expected.get("upstream_body")
    if wanted is None:
        return
    sent = played.request.partition(b"\r\n\r\n")[2]
    if wanted != "byte-identical":
        sent = as_bytes(wanted)
    if body != sent:
        yield f"the upstream's request body differs: {_difference(body, sent)}"


def _difference(seen: bytes, wanted: bytes) -> str:
    """Where they part, and what follows there."""
    pairs = enumerate(zip(seen, wanted, strict=False))
    at = next((n for n, (a, b) in pairs if a != b), min(len(seen), len(wanted)))
    return (
        f"at {at} of {len(wanted)} ({len(seen)} came):"
        f" {seen[at : at + 80]!r}, not {wanted[at : at + 80]!r}"
    )
