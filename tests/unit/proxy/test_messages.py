"""Anthropic's Messages: what is made of a request, and what a stream says."""

from typing import Any

import msgspec
import pytest

from prefold.proxy.messages import MessagesBody, MessagesMeter, MessagesUsage, error_event
from prefold.proxy.meter import Ending
from tests.support.upstream import event

START = event(
    type="message_start",
    message={"id": "msg_1", "usage": {"input_tokens": 2, "cache_read_input_tokens": 8}},
)
HI = event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "Hi"})
STOP = event(type="message_stop")


def metered(*events: bytes) -> MessagesMeter:
    meter = MessagesMeter()
    for number, one in enumerate(events):
        assert meter.observe(one, float(number))
    return meter


def body(**members: Any) -> MessagesBody:
    made = {"messages": [{"role": "user", "content": "hi"}], **members}
    return msgspec.convert(made, MessagesBody)


def test_the_first_content_delta_is_the_first_token() -> None:
    """Not message_start, not a ping, not the start of a block."""
    ping, block = event(type="ping"), event(type="content_block_start", content_block={})

    assert metered(START, ping, block, HI, STOP).token_times == [3.0]


def test_cached_tokens_are_part_of_the_prompt() -> None:
    """`input_tokens` leaves them out; later figures replace earlier ones."""
    meter = metered(START, HI, event(type="message_delta", usage={"output_tokens": 5}), STOP)

    assert meter.usage is not None
    assert meter.usage.prompt_tokens == 10
    assert meter.usage.completion_tokens == 5
    assert meter.usage.prompt_tokens_details is not None
    assert meter.usage.prompt_tokens_details.cached_tokens == 8


def test_without_a_cache_figure_reuse_is_unknown() -> None:
    """Unknown is not zero."""
    usage = MessagesUsage(input_tokens=7).usage()

    assert usage.prompt_tokens == 7
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens is None


@pytest.mark.parametrize(
    ("events", "ending"),
    [
        ([START, HI], Ending.OPEN),
        ([START, HI, event(type="message_delta", delta={"stop_reason": "end_turn"})], Ending.OPEN),
        ([START, HI, STOP], Ending.COMPLETE),
        ([event(type="error", error={"type": "overloaded_error", "message": "x"})], Ending.ERROR),
        ([event(error={"message": "x"})], Ending.ERROR),
    ],
)
def test_how_a_stream_ended(events: list[bytes], ending: Ending) -> None:
    """message_stop is its last event."""
    assert metered(*events).ending is ending


def test_a_plain_request_is_the_chat_that_engines_make_of_it() -> None:
    """Blocks of `system` are joined without a separator; texts of a message stay parts."""
    system = [{"type": "text", "text": "Be A."}, {"type": "text", "text": "Be B."}]
    parts = [{"type": "text", "text": "hi"}, {"type": "text", "text": "there", "cache_control": {}}]

    assert body(system=system, messages=[{"role": "user", "content": parts}]).as_chat() == [
        {"role": "system", "content": "Be A.Be B."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "there"}],
        },
    ]


@pytest.mark.parametrize(
    "members",
    [
        {"tools": [{"name": "f", "input_schema": {}}]},
        {"thinking": {"type": "enabled"}},
        {"system": 3},
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
        {"messages": [{"role": "user", "content": None}]},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"content": "x"}]},
    ],
)
def test_anything_else_is_not_claimed_to_be_known(members: dict[str, Any]) -> None:
    """Tools, thinking, images: what engines make of these differs."""
    assert body(**members).as_chat() is None


def test_a_line_that_differs_in_each_request_is_no_part_of_the_key() -> None:
    """A coding agent puts it before its system message."""

    def key(nonce: str) -> list[Any]:
        billing = {"type": "text", "text": f"x-anthropic-billing-header: cch={nonce};"}
        return body(system=[billing, {"type": "text", "text": "You code."}]).key_parts()

    assert key("11111") == key("22222")


def test_an_error_event_is_in_the_protocols_own_form() -> None:
    """A name, and data that repeats it."""
    name, data = error_event("cut", "api_error").removesuffix(b"\n\n").split(b"\n")

    assert name == b"event: error"
    assert msgspec.json.decode(data.removeprefix(b"data: ")) == {
        "type": "error",
        "error": {"type": "api_error", "message": "cut"},
    }
