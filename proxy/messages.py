"""Anthropic's Messages, which vLLM, SGLang and llama.cpp serve too: request, events, usage, errors.

https://docs.anthropic.com/en/api/messages and .../messages-streaming.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from prefold.backends.engine import PromptTokensDetails, Usage
from prefold.proxy.meter import NULL, Meter, decoded, status_of_error

# A line that a coding agent puts before its system message, different in each request. vLLM takes
# it out; where an engine does not, nothing after it can be shared anyway.
BILLING = "x-anthropic-billing-header"


class MessagesBody(msgspec.Struct):
    """POST /v1/messages: what decides the prompt's tokens, and what we act on."""

    messages: list[dict[str, Any]]
    model: str | None = None
    system: Any = None
    stream: bool | None = None
    tools: list[dict[str, Any]] | None = None
    thinking: Any = None
    cache_salt: str | None = None

    path: ClassVar[str] = "/v1/messages"
    several: ClassVar[bool] = False
    sequences: ClassVar[Any] = None
    prompt_cache_key: ClassVar[Any] = None

    def as_chat(self) -> list[dict[str, Any]] | None:
        """The chat that engines make of it, where that is plain: texts only, no tools. They join
        the blocks of `system` without a separator."""
        if self.tools or self.thinking is not None:
            return None
        system = texts_of(self.system) if self.system is not None else []
        if system is None:
            return None
        joined = "".join(text for text in system if not text.startswith(BILLING))
        chat: list[dict[str, Any]] = [{"role": "system", "content": joined}] if joined else []
        for message in self.messages:
            texts = texts_of(message.get("content"))
            if texts is None or message.get("role") not in ("user", "assistant"):
                return None
            parts = [{"type": "text", "text": text} for text in texts]
            content = message["content"] if isinstance(message["content"], str) else parts
            chat.append({"role": message["role"], "content": content})
        return chat

    def key_parts(self) -> list[Any]:
        """What stands for the prompt where its tokens are not known, in the order of templates."""
        system = self.system
        if isinstance(system, list):
            system = [block for block in system if not _is_billing(block)]
        return [self.tools, system, self.messages]


def texts_of(content: Any) -> list[str] | None:
    """The texts of a content, which is one text or a list of blocks; None if it holds others."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return None
    texts = []
    for block in content:
        if not isinstance(block, dict) or not isinstance(block.get("text"), str):
            return None
        if block.get("type") not in ("text", "input_text", "output_text"):
            return None
        texts.append(block["text"])
    return texts


def _is_billing(block: Any) -> bool:
    text = block.get("text") if isinstance(block, dict) else None
    return isinstance(text, str) and text.startswith(BILLING)


class MessagesUsage(msgspec.Struct):
    """`input_tokens` are those not read from, nor written to, a cache."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None

    def usage(self) -> Usage:
        prompt = self.input_tokens
        if prompt is not None:
            prompt += (self.cache_read_input_tokens or 0) + (self.cache_creation_input_tokens or 0)
        return Usage(
            prompt_tokens=prompt,
            completion_tokens=self.output_tokens,
            prompt_tokens_details=PromptTokensDetails(self.cache_read_input_tokens),
        )


class Message(msgspec.Struct):
    usage: msgspec.Raw = NULL


class Event(msgspec.Struct):
    type: Any = None
    message: Message | None = None
    usage: msgspec.Raw = NULL
    error: Any = None
    delta: Any = None


DELTAS = {"thinking_delta": "reasoning", "input_json_delta": "tool"}
OTHERS = {"message_start": "role", "message_delta": "finish", "message_stop": "done"}

_DECODER = msgspec.json.Decoder(Event)


class MessagesMeter(Meter):
    def __init__(self) -> None:
        super().__init__()
        self._stopped = False
        self._usage = MessagesUsage()

    def complete(self) -> bool:
        return self._stopped

    def note(self, data: bytes, now: float) -> bool:
        event = _DECODER.decode(data)
        if event.type == "error" or event.error is not None:
            self.error_status = status_of_error(event.error)
        elif event.type == "content_block_delta":
            self.note_token(now, DELTAS.get(_type_of(event.delta), "content"))
            return True
        elif event.type == "message_stop":
            self._stopped = True
        elif event.type == "message_start" and event.message is not None:
            self._counted(event.message.usage)
        elif event.type == "message_delta":
            self._counted(event.usage)
        self.note_other(now, OTHERS.get(str(event.type), "other"))
        return True

    def _counted(self, raw: msgspec.Raw) -> None:
        """Later figures replace earlier ones, member by member."""
        seen = decoded(raw, MessagesUsage)
        if seen is None:
            return
        for name in MessagesUsage.__struct_fields__:
            if getattr(seen, name) is not None:
                setattr(self._usage, name, getattr(seen, name))
        self.usage = self._usage.usage()


def _type_of(delta: Any) -> str:
    kind = delta.get("type") if isinstance(delta, dict) else None
    return kind if isinstance(kind, str) else ""


def error_body(message: str, kind: str) -> bytes:
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": message}})


def error_event(message: str, kind: str) -> bytes:
    return b"event: error\ndata: " + error_body(message, kind) + b"\n\n"
