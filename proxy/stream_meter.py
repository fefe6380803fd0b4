"""What a stream of chat or text completion events says: when tokens came, and how it ended.

Pure: events and times in, facts out. First content, reasoning or tool-call delta is the first
token; role-only and empty chunks are not tokens.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from prefold.backends.engine import Timings, Usage
from prefold.proxy.sse import event_data


class Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[msgspec.Raw] | None = None
    function_call: dict[str, Any] | None = None
    refusal: str | None = None
    audio: dict[str, Any] | None = None

    def carries_output(self) -> bool:
        return bool(
            self.content
            or self.reasoning_content
            or self.reasoning
            or self.tool_calls
            or self.function_call
            or self.refusal
            or self.audio
        )


class Choice(msgspec.Struct):
    index: int = 0
    delta: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    choices: list[Choice] | None = None
    usage: Usage | None = None
    timings: Timings | None = None
    error: Any = None


class Ending(StrEnum):
    OPEN = "open"  # nothing terminal seen
    COMPLETE = "complete"  # [DONE], or every choice seen has its finish_reason
    ERROR = "error"  # the upstream said so itself


_DECODER = msgspec.json.Decoder(Chunk)


class StreamMeter:
    """Mutable; one for each stream. Times are whatever clock the caller passes in."""

    def __init__(self) -> None:
        self.token_times: list[float] = []
        self.usage: Usage | None = None
        self.timings: Timings | None = None
        self._done = False
        self.hidden_error = False
        """An error came in a shape that clients overlook: {"object": "error", "message": ...}."""
        self._error = False
        self._choices: dict[int, bool] = {}

    def observe(self, event: bytes, now: float) -> Chunk | None:
        """Take note of one event; the chunk it held, if it held one."""
        data = event_data(event)
        if data is None or not data.strip():
            return None
        if data.strip() == b"[DONE]":
            self._done = True
            return None
        try:
            chunk = _DECODER.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None  # not for us to judge: it is relayed as it is
        self._note(chunk, event, now)
        return chunk

    def _note(self, chunk: Chunk, event: bytes, now: float) -> None:
        if chunk.error is not None:
            self._error = True
        elif _is_flat_error(chunk, event):
            self.hidden_error = True
        if chunk.usage is not None:
            self.usage = chunk.usage
        if chunk.timings is not None:
            self.timings = chunk.timings
        output = False
        for choice in chunk.choices or ():
            finished = choice.finish_reason is not None
            self._choices[choice.index] = self._choices.get(choice.index, False) or finished
            if choice.text or (choice.delta is not None and choice.delta.carries_output()):
                output = True
        if output:
            self.token_times.append(now)

    @property
    def ending(self) -> Ending:
        if self._error or self.hidden_error:
            return Ending.ERROR
        if self._done or (self._choices and all(self._choices.values())):
            return Ending.COMPLETE
        return Ending.OPEN


def _is_flat_error(chunk: Chunk, event: bytes) -> bool:
    return chunk.choices is None and b'"object"' in event and b'"error"' in event


def is_usage_only(chunk: Chunk | None) -> bool:
    """The extra last chunk that `include_usage` asks for: usage, and an empty choices list."""
    return chunk is not None and chunk.usage is not None and chunk.choices == []
