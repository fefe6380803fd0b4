"""When tokens came, and how a stream ended."""

import pytest

from prefold.proxy.chunks import ChunkMeter
from prefold.proxy.meter import Ending
from tests.support.upstream import DONE, delta, event


def metered(*events: bytes) -> ChunkMeter:
    meter = ChunkMeter()
    for number, one in enumerate(events):
        meter.observe(one, float(number))
    return meter


@pytest.mark.parametrize(
    "token",
    [
        delta("Hi"),
        delta(reasoning_content="Hmm"),
        delta(reasoning="Hmm"),
        delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": ""}}]),
        delta(function_call={"name": "f"}),
        delta(refusal="No"),
        event(choices=[{"delta": {"content": [{"type": "text", "text": "Hi"}]}}], usage={"x": 1.5}),
        event(choices=[{"index": 0, "text": "Hi", "finish_reason": None}]),
        delta("Hi", finish="length"),
        b'data:{"choices":[{"delta":{"content":"Hi"}}]}\n\n',
        b'id: 1\r\ndata: {"choices":[{"delta":{"content":"Hi"}}]}\r\n\r\n',
    ],
)
def test_output_of_any_kind_is_a_token(token: bytes) -> None:
    """Content, reasoning, tool calls, refusals, and text of a completion."""
    assert metered(delta("", role="assistant"), token).token_times == [1.0]


@pytest.mark.parametrize(
    "other",
    [
        delta(role="assistant"),
        delta("", role="assistant"),
        delta(finish="stop"),
        delta(tool_calls=[]),
        event(choices=[]),
        event(choices=[], usage={"prompt_tokens": 1}),
        event(choices=[{"index": 0}]),
        event(choices=None, prompt_progress={"total": 5, "cache": 0, "processed": 2}),
        b": ping\n\n",
        b"data:\n\n",
        b"data: not json\n\n",
        b"event: x\nretry: 5\n\n",
        DONE,
    ],
)
def test_everything_else_is_not_a_token(other: bytes) -> None:
    """Role-only, empty, finish, usage, progress, comments, [DONE]: relayed and not clocked."""
    assert metered(other).token_times == []


def test_usage_and_timings_are_the_last_ones_seen() -> None:
    """A null in an ordinary chunk is not the final usage."""
    meter = metered(
        event(choices=[], usage={"prompt_tokens": 5, "prompt_tokens_details": None}),
        event(choices=[], usage=None),
        event(choices=[], timings={"cache_n": 3, "prompt_n": 2, "prompt_ms": 7.5}),
    )

    assert meter.usage is not None
    assert meter.usage.prompt_tokens == 5
    assert meter.timings is not None
    assert meter.timings.cache_n == 3


@pytest.mark.parametrize(
    ("events", "ending"),
    [
        ([], Ending.OPEN),
        ([delta("Hi")], Ending.OPEN),
        ([DONE], Ending.COMPLETE),
        ([delta("Hi", finish="stop")], Ending.COMPLETE),
        ([event(choices=[{"index": 0, "finish_reason": "stop"}, {"index": 1}])], Ending.OPEN),
        (
            [
                event(choices=[{"index": 1, "finish_reason": "stop"}]),
                event(choices=[{"index": 0, "finish_reason": "length"}]),
            ],
            Ending.COMPLETE,
        ),
        ([event(error={"message": "x"}), DONE], Ending.ERROR),
        ([event(error="x"), DONE], Ending.ERROR),
        ([event(object="error", message="x", code=500), DONE], Ending.ERROR),
        ([event(error=None, choices=[]), DONE], Ending.COMPLETE),
    ],
)
def test_how_a_stream_ended(events: list[bytes], ending: Ending) -> None:
    """[DONE] or a finish_reason for every choice is whole; an error is one in any shape."""
    assert metered(*events).ending is ending


@pytest.mark.parametrize(
    ("error", "hidden"),
    [
        (event(error={"message": "x"}), False),
        (event(error="x"), False),
        (event(object="error", message="x", code=500), True),
        (delta('"object": "error"'), False),
        (event(object="chat.completion.chunk", usage={"prompt_tokens": 1}, error=None), False),
    ],
)
def test_errors_that_official_clients_overlook_are_told_apart(error: bytes, hidden: bool) -> None:
    """They raise for an `error` member only; text that speaks of errors is no error."""
    assert metered(error).hidden_error is hidden


def test_only_the_extra_chunk_is_stripped() -> None:
    """A finish chunk that carries usage too (llama.cpp) is the client's."""
    meter = ChunkMeter(strip_usage=True)

    assert not meter.observe(event(choices=[], usage={"prompt_tokens": 1}), 0.0)
    finish = event(choices=[{"index": 0, "finish_reason": "stop"}], usage={"prompt_tokens": 1})
    assert meter.observe(finish, 0.0)
    assert meter.observe(event(choices=[]), 0.0)
    assert meter.observe(DONE, 0.0)
    assert ChunkMeter().observe(event(choices=[], usage={"prompt_tokens": 1}), 0.0)


def test_nothing_goes_to_the_client_after_done() -> None:
    """Some clients would show it; what came before counts."""
    meter = metered(delta("Hi"), DONE)

    assert not meter.observe(delta("ZZZ"), 2.0)
    assert meter.token_times == [0.0]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"message": "x"}, 500),
        ({"code": 400}, 400),
        ({"code": "429"}, 429),
        ({"code": "rate_limit_exceeded", "status": 429}, 429),
        ({"code": 200}, 500),
        ("x", 500),
    ],
)
def test_an_error_event_has_the_status_it_names(error: object, status: int) -> None:
    """A client error in a stream is no fault of the backend; without a status it is one."""
    assert metered(event(error=error)).error_status == status
