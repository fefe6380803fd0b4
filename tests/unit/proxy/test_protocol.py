"""The forms in which a path speaks."""

import json

import pytest

from prefold.proxy.chunks import ChunkMeter
from prefold.proxy.errors import BadRequest, NoBackendAvailable, TooLarge, UpstreamFailed
from prefold.proxy.protocol import (
    CHUNKS,
    MESSAGES,
    OPAQUE,
    RESPONSES,
    Protocol,
    normalised,
    protocol_of,
)


@pytest.mark.parametrize(
    ("path", "protocol"),
    [
        ("/v1/chat/completions", CHUNKS),
        ("/v1/completions", CHUNKS),
        ("/v1/messages", MESSAGES),
        ("/v1/messages/count_tokens", MESSAGES),
        ("/v1/responses", RESPONSES),
        ("/v1/responses/resp_1/cancel", RESPONSES),
        ("/v1/responsesx", OPAQUE),
        ("/v1/embeddings", OPAQUE),
        ("/nothing", OPAQUE),
    ],
)
def test_each_path_has_a_protocol(path: str, protocol: Protocol) -> None:
    """Streams of the others are not understood, and only their framing is judged."""
    assert protocol_of(path) is protocol


def test_an_error_has_all_four_members() -> None:
    """The Node client drops the message of other forms."""
    told = json.loads(CHUNKS.wrong(BadRequest("no", param="n")))

    assert told == {
        "error": {"message": "no", "type": "invalid_request_error", "param": "n", "code": None}
    }


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BadRequest("x"), "invalid_request_error"),
        (TooLarge("x"), "request_too_large"),
        (NoBackendAvailable("x"), "overloaded_error"),
        (UpstreamFailed("x"), "api_error"),
    ],
)
def test_errors_of_messages_have_anthropics_types(error: BadRequest, kind: str) -> None:
    """Its clients choose their exceptions by status and type."""
    told = json.loads(MESSAGES.wrong(error))

    assert told == {"type": "error", "error": {"type": kind, "message": "x"}}


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"x"}}',
        b'{"type":"error","error":{"type":"api_error","message":"x"}}',
        b'{"error":{},"more":[1]}',
    ],
)
def test_an_error_object_is_left_alone(body: bytes) -> None:
    """Bytes are sacred where they are understood."""
    assert normalised(CHUNKS, 500, body) is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "The backend answered 500."),
        (b"<html>nginx</html>", "The backend answered 500."),
        (b"[1]", "The backend answered 500."),
        (b'{"error":null}', "The backend answered 500."),
        (b'{"error":"full"}', "full"),
        (b'{"detail":"no"}', "no"),
        (b'{"object":"error","message":"long","code":400}', "long"),
        (b'{"message":"\xff"}', "The backend answered 500."),
    ],
)
def test_any_other_shape_becomes_one(body: bytes, message: str) -> None:
    """What it said is kept where it said something; pages of gateways are not."""
    told = normalised(CHUNKS, 500, body)

    assert told is not None
    assert json.loads(told)["error"] == {
        "message": message,
        "type": "server_error",
        "param": None,
        "code": None,
    }


def test_a_failed_response_is_an_answer_that_failed() -> None:
    """It is an object with an id; an error in its place is not."""
    failed = RESPONSES.read(
        b'{"object":"response","id":"r","status":"failed","error":{"code":"x"}}'
    )
    assert (failed.error, failed.failed, failed.response_id) == (None, True, "r")

    instead = RESPONSES.read(b'{"error":{"message":"x"}}')
    assert instead.error == {"message": "x"}


@pytest.mark.parametrize("protocol", [CHUNKS, MESSAGES, RESPONSES, OPAQUE])
def test_a_body_of_an_odd_shape_says_nothing(protocol: Protocol) -> None:
    """And breaks nothing."""
    odd = {"prompt_tokens": "x", "input_tokens": "x"}
    for body in (b"", b"[]", b'{"usage":3}', json.dumps({"usage": odd}).encode(), b"\xff"):
        read = protocol.read(body)
        assert (read.usage, read.error) == (None, None), body


def test_the_last_event_of_a_cut_stream_is_one_event() -> None:
    """With its blank line."""
    for protocol in (CHUNKS, MESSAGES, RESPONSES, OPAQUE):
        event = protocol.cut(ChunkMeter(), UpstreamFailed("cut"))
        assert event.endswith(b"}\n\n")
        assert event.count(b"\n\n") == 1
