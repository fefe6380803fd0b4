"""What each event of a stream is noted as, in each protocol."""

from __future__ import annotations

from typing import Any

from prefold.proxy.chunks import ChunkMeter
from prefold.proxy.messages import MessagesMeter
from prefold.proxy.meter import MAX_NOTED, Meter
from prefold.proxy.responses import ResponsesMeter
from tests.support.upstream import DONE, delta, event


def metered(meter: Meter, *events: bytes) -> Meter:
    for now, one in enumerate(events):
        meter.observe(one, float(now))
    return meter


def test_chunks_are_told_apart() -> None:
    """Role, reasoning, content, tool call, finish, usage and the end."""
    meter = metered(
        ChunkMeter(),
        delta("", role="assistant"),
        delta(reasoning_content="hm"),
        delta(reasoning="hm"),
        delta("a"),
        delta("b"),
        delta(tool_calls=[{"index": 0}]),
        delta(finish="stop"),
        event(choices=[], usage={"prompt_tokens": 1}),
        DONE,
    )

    assert meter.token_times == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert meter.token_kinds == [(0, "reasoning"), (2, "content"), (4, "tool")]
    assert meter.other_events == [(0.0, "role"), (6.0, "finish"), (7.0, "usage"), (8.0, "done")]


def test_a_text_completion_is_content() -> None:
    """Also where the finish comes with the last text."""
    last = event(choices=[{"index": 0, "text": "a", "finish_reason": "stop"}])
    meter = metered(ChunkMeter(), last, event(object="x"))

    assert (meter.token_kinds, meter.other_events) == ([(0, "content")], [(1.0, "other")])


def test_messages_are_told_apart() -> None:
    """Thinking, text, the input of a tool."""

    def block(kind: str) -> bytes:
        return event(type="content_block_delta", delta={"type": kind})

    meter = metered(
        MessagesMeter(),
        event(type="message_start", message={}),
        event(type="content_block_start"),
        block("thinking_delta"),
        block("text_delta"),
        block("input_json_delta"),
        event(type="content_block_delta", delta=3),
        event(type="message_delta", usage={"output_tokens": 1}),
        event(type="message_stop"),
    )

    kinds = [(0, "reasoning"), (1, "content"), (2, "tool"), (3, "content")]
    assert meter.token_kinds == kinds
    assert [kind for _, kind in meter.other_events] == ["role", "other", "finish", "done"]


def test_responses_are_told_apart() -> None:
    """Reasoning and its summary, text, arguments and input of tools."""

    def piece(kind: str) -> bytes:
        return event(type=f"response.{kind}.delta", delta="x")

    meter = metered(
        ResponsesMeter(),
        event(type="response.created", response={}),
        piece("reasoning_text"),
        piece("reasoning_summary_text"),
        piece("output_text"),
        piece("function_call_arguments"),
        piece("custom_tool_call_input"),
        event(type="response.completed", response={}),
    )

    assert meter.token_kinds == [(0, "reasoning"), (2, "content"), (3, "tool")]
    assert [kind for _, kind in meter.other_events] == ["role", "done"]


def test_what_is_noted_besides_tokens_is_bounded() -> None:
    """A stream may send empty events as long as it likes; its tokens are counted all the same."""
    empty: list[Any] = [delta(""), delta("a"), delta(reasoning="b")]
    meter = metered(ChunkMeter(), *(empty * 100))

    assert len(meter.other_events) == len(meter.token_kinds) == MAX_NOTED
    assert len(meter.token_times) == 200
