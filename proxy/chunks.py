"""Events of chat and text completions, https://platform.openai.com/docs/api-reference/chat-streaming.

First content, reasoning or tool-call delta is the first token; role-only and empty chunks are none.
"""

from __future__ import annotations

from typing import Any

import msgspec

from prefold.backends.engine import Timings, Usage
from prefold.proxy.meter import NULL, Meter, decoded, status_of_error


class Delta(msgspec.Struct):
    # Any: a member of another type than OpenAI's is output all the same.
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: Any = None
    function_call: Any = None
    refusal: Any = None
    audio: Any = None

    def kind(self) -> str:
        """Of the output that it carries; "" for none."""
        if self.content or self.refusal or self.audio:
            return "content"
        if self.reasoning_content or self.reasoning:
            return "reasoning"
        return "tool" if self.tool_calls or self.function_call else ""


class Choice(msgspec.Struct):
    index: int = 0
    delta: Delta | None = None
    text: Any = None
    finish_reason: Any = None


class Chunk(msgspec.Struct):
    choices: list[Choice] | None = None
    usage: msgspec.Raw = NULL
    timings: msgspec.Raw = NULL
    error: Any = None
    object: Any = None
    code: Any = None


_DECODER = msgspec.json.Decoder(Chunk)


class ChunkMeter(Meter):
    """`strip_usage`: the extra last chunk that `include_usage` asks for does not go to the client,
    which did not ask for it."""

    def __init__(self, *, strip_usage: bool = False) -> None:
        super().__init__()
        self._strip_usage = strip_usage
        self._choices: dict[int, bool] = {}

    def complete(self) -> bool:
        """Every choice seen has its finish_reason."""
        return bool(self._choices) and all(self._choices.values())

    def note(self, data: bytes, now: float) -> bool:
        chunk = _DECODER.decode(data)
        if chunk.error is not None:
            self.error_status = status_of_error(chunk.error)
        elif chunk.object == "error":
            self.error_status = status_of_error({"code": chunk.code})
            self.hidden_error = True
        if chunk.usage is not NULL:
            self.usage = decoded(chunk.usage, Usage) or self.usage
        if chunk.timings is not NULL:
            self.timings = decoded(chunk.timings, Timings) or self.timings
        kind = ""
        finished = False
        for choice in chunk.choices or ():
            finished = choice.finish_reason is not None
            self._choices[choice.index] = self._choices.get(choice.index, False) or finished
            if choice.text:
                kind = "content"
            elif choice.delta is not None:
                kind = choice.delta.kind() or kind
        if kind:
            self.note_token(now, kind)
        else:
            self.note_other(now, _kind_without_output(chunk, finished=finished))
        return not (self._strip_usage and chunk.choices == [] and bytes(chunk.usage) != b"null")


def _kind_without_output(chunk: Chunk, *, finished: bool) -> str:
    if finished:
        return "finish"
    if chunk.choices:
        return "role"
    return "usage" if bytes(chunk.usage) != b"null" else "other"
