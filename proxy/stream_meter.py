"""What a stream of chat or text completion events says: when tokens came, and how it ended.

Pure: events and times in, facts out. First content, reasoning or tool-call delta is the first
token; role-only and empty chunks are not tokens.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from prefold.backends.engine import Timings, Usage
from prefold.proxy.sse import event_data

T = TypeVar("T")
_ABSENT = msgspec.Raw(b"null")


class Delta(msgspec.Struct):
    # Any: a member of another type than OpenAI's is output all the same.
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: Any = None
    function_call: Any = None
    refusal: Any = None
    audio: Any = None

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
    text: Any = None
    finish_reason: Any = None


class Chunk(msgspec.Struct):
    choices: list[Choice] | None = None
    usage: msgspec.Raw = _ABSENT
    timings: msgspec.Raw = _ABSENT
    error: Any = None
    object: Any = None


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
        self._note(chunk, now)
        return chunk

    def _note(self, chunk: Chunk, now: float) -> None:
        if chunk.error is not None:
            self._error = True
        elif chunk.object == "error":
            self.hidden_error = True
        self.usage = _decoded(chunk.usage, Usage) or self.usage
        self.timings = _decoded(chunk.timings, Timings) or self.timings
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


def _decoded(raw: msgspec.Raw, kind: type[T]) -> T | None:
    """None for null, and for a form of its own that some server gives it."""
    if bytes(raw) == b"null":
        return None
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def is_usage_only(chunk: Chunk | None) -> bool:
    """The extra last chunk that `include_usage` asks for: usage, and an empty choices list."""
    return chunk is not None and bytes(chunk.usage) != b"null" and chunk.choices == []
