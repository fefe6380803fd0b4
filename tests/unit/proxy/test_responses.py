"""OpenAI's Responses: what is made of a request, and what a stream says."""

from typing import Any

import msgspec
import pytest

from prefold.proxy.meter import Ending
from prefold.proxy.responses import ResponsesBody, ResponsesMeter, error_event
from tests.support.upstream import event

CREATED = event(type="response.created", response={"id": "resp_1"}, sequence_number=0)
HI = event(type="response.output_text.delta", delta="Hi", sequence_number=4)
USAGE = {"input_tokens": 10, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 8}}
COMPLETED = event(type="response.completed", response={"id": "resp_1", "usage": USAGE})


def metered(*events: bytes) -> ResponsesMeter:
    meter = ResponsesMeter()
    for number, one in enumerate(events):
        assert meter.observe(one, float(number))
    return meter


def body(**members: Any) -> ResponsesBody:
    return msgspec.convert({"input": "hi", **members}, ResponsesBody)


@pytest.mark.parametrize(
    "token",
    [
        HI,
        event(type="response.reasoning_text.delta", delta="Hm"),
        event(type="response.function_call_arguments.delta", delta="{"),
        event(type="response.refusal.delta", delta="No"),
    ],
)
def test_the_first_delta_is_the_first_token(token: bytes) -> None:
    """Of whatever kind; created, in_progress and added come before it."""
    added = event(type="response.output_item.added", item={})

    assert metered(CREATED, added, token, COMPLETED).token_times == [2.0]


def test_id_and_usage_are_read() -> None:
    """The id from the first event on, the usage from the last one."""
    assert metered(CREATED).response_id == "resp_1"
    usage = metered(CREATED, HI, COMPLETED).usage
    assert usage is not None
    assert usage.prompt_tokens == 10
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 8


@pytest.mark.parametrize(
    ("events", "ending"),
    [
        ([CREATED, HI], Ending.OPEN),
        ([CREATED, HI, event(type="response.output_text.done", text="Hi")], Ending.OPEN),
        ([CREATED, HI, COMPLETED], Ending.COMPLETE),
        ([CREATED, event(type="response.incomplete", response={})], Ending.COMPLETE),
        ([CREATED, event(type="response.failed", response={"error": {"code": "x"}})], Ending.ERROR),
        ([CREATED, event(type="error", code="server_error", message="x")], Ending.ERROR),
        ([CREATED, event(error={"message": "x"})], Ending.ERROR),
    ],
)
def test_how_a_stream_ended(events: list[bytes], ending: Ending) -> None:
    """Completed and incomplete are answers, failed and error are not."""
    assert metered(*events).ending is ending


def test_an_error_event_goes_on_with_the_numbers() -> None:
    """`sequence_number` follows that of the last event."""
    number = metered(CREATED, HI).next_number
    name, data = error_event("cut", "upstream_failed", number).removesuffix(b"\n\n").split(b"\n")

    assert name == b"event: error"
    assert msgspec.json.decode(data.removeprefix(b"data: "))["sequence_number"] == 5


def test_a_plain_request_is_the_chat_that_engines_make_of_it() -> None:
    """Instructions are the system message; a text is the user's."""
    assert body(instructions="Be kind.").as_chat() == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hi"},
    ]
    item = {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    parts = [{"type": "text", "text": "hi"}]
    assert body(input=[item]).as_chat() == [{"role": "user", "content": parts}]


@pytest.mark.parametrize(
    "members",
    [
        {"previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
        {"tools": []},
        {"reasoning": {"effort": "low"}},
        {"instructions": [{}]},
        {"input": None},
        {"input": [{"type": "function_call_output", "output": "x"}]},
        {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
        {"input": ["x"]},
    ],
)
def test_anything_else_is_not_claimed_to_be_known(members: dict[str, Any]) -> None:
    """What was said before, tools, images."""
    assert body(**members).as_chat() is None
