"""OpenAI's Responses: request, events, usage, errors. Some of it is state of the backend that made
a response: `pins` remembers which one that was.

https://platform.openai.com/docs/api-reference/responses and .../responses-streaming.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from prefold.backends.engine import PromptTokensDetails, Usage
from prefold.proxy.messages import texts_of
from prefold.proxy.meter import NULL, Meter, decoded, status_of_error

ROLES = ("user", "assistant", "system", "developer")


class ResponsesBody(msgspec.Struct):
    """POST /v1/responses: what decides the prompt's tokens, and what we act on."""

    input: Any = None
    model: str | None = None
    instructions: Any = None
    stream: bool | None = None
    tools: list[dict[str, Any]] | None = None
    reasoning: Any = None
    text: Any = None
    prompt: Any = None
    previous_response_id: str | None = None
    conversation: Any = None
    cache_salt: str | None = None
    prompt_cache_key: Any = None

    path: ClassVar[str] = "/v1/responses"
    several: ClassVar[bool] = False
    sequences: ClassVar[Any] = None

    def as_chat(self) -> list[dict[str, Any]] | None:
        """The chat that engines make of it, where that is plain: texts only, nothing of before."""
        if not (
            self.tools is None
            and self.reasoning is None
            and self.text is None
            and self.prompt is None
            and self.previous_response_id is None
            and self.conversation is None
        ):
            return None
        chat: list[dict[str, Any]] = []
        if self.instructions is not None:
            if not isinstance(self.instructions, str):
                return None
            chat.append({"role": "system", "content": self.instructions})
        if isinstance(self.input, str):
            return [*chat, {"role": "user", "content": self.input}]
        for item in self.input if isinstance(self.input, list) else [None]:
            message = _message(item)
            if message is None:
                return None
            chat.append(message)
        return chat

    def key_parts(self) -> list[Any]:
        """What stands for the prompt where its tokens are not known, in the order of templates."""
        return [self.tools, self.instructions, self.input]


def _message(item: Any) -> dict[str, Any] | None:
    if not isinstance(item, dict) or item.get("type", "message") != "message":
        return None
    texts = texts_of(item.get("content"))
    if texts is None or item.get("role") not in ROLES:
        return None
    if isinstance(item["content"], str):
        return {"role": item["role"], "content": item["content"]}
    parts = [{"type": "text", "text": text} for text in texts]
    return {"role": item["role"], "content": parts}


class ResponsesUsage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: PromptTokensDetails | None = None

    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=self.input_tokens,
            completion_tokens=self.output_tokens,
            prompt_tokens_details=self.input_tokens_details,
        )


class Response(msgspec.Struct):
    id: Any = None
    usage: msgspec.Raw = NULL
    error: Any = None


class Event(msgspec.Struct):
    type: Any = None
    response: Response | None = None
    error: Any = None
    code: Any = None
    delta: Any = None
    sequence_number: Any = None


OTHERS = {
    "response.created": "role",
    "response.completed": "done",
    "response.incomplete": "done",
}

_DECODER = msgspec.json.Decoder(Event)


class ResponsesMeter(Meter):
    def __init__(self) -> None:
        super().__init__()
        self._ended = False
        self.next_number = 0
        """`sequence_number` of an event of our own."""

    def complete(self) -> bool:
        return self._ended

    def note(self, data: bytes, now: float) -> bool:
        event = _DECODER.decode(data)
        kind = event.type if isinstance(event.type, str) else ""
        number = event.sequence_number
        self.next_number = number + 1 if isinstance(number, int) else self.events
        if event.response is not None:
            if isinstance(event.response.id, str):
                self.response_id = event.response.id
            seen = decoded(event.response.usage, ResponsesUsage)
            self.usage = seen.usage() if seen is not None else self.usage
        if kind == "response.failed" and event.response is not None:
            self.error_status = status_of_error(event.response.error)
        elif kind == "error" or event.error is not None:
            self.error_status = status_of_error(event.error or {"code": event.code})
        elif kind.startswith("response.") and kind.endswith(".delta") and event.delta:
            self.note_token(now, _kind_of_delta(kind))
            return True
        elif kind in ("response.completed", "response.incomplete"):
            self._ended = True
        self.note_other(now, OTHERS.get(kind, "other"))
        return True


def _kind_of_delta(kind: str) -> str:
    if kind.startswith("response.reasoning"):
        return "reasoning"
    return "tool" if kind.endswith(("arguments.delta", "input.delta")) else "content"


def error_event(message: str, code: str | None, number: int) -> bytes:
    data = {
        "type": "error",
        "code": code,
        "message": message,
        "param": None,
        "sequence_number": number,
    }
    return b"event: error\ndata: " + msgspec.json.encode(data) + b"\n\n"
