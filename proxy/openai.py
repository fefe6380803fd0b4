"""The few members of OpenAI's requests that routing needs. The body itself is left alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, TypeVar

import msgspec

from prefold.proxy.body_memo import BodyMemo, Parted
from prefold.proxy.errors import BadRequest
from prefold.proxy.json_shape import (
    fills,
    may_exceed,
    may_repeat_model,
    text_exceeds,
    value_exceeds,
)
from prefold.proxy.messages import MessagesBody
from prefold.proxy.responses import ResponsesBody
from prefold.proxy.splice import members as members_of
from prefold.proxy.splice import replace_member


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class ChatBody(msgspec.Struct):
    """POST /v1/chat/completions: what decides the prompt's tokens, and what we act on. Where the
    type of a member is the engine's to judge, it is Any."""

    messages: list[dict[str, Any]]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    documents: Any = None
    reasoning_effort: Any = None
    chat_template: Any = None
    add_special_tokens: Any = None
    truncate_prompt_tokens: Any = None
    n: Any = None
    cache_salt: str | None = None
    prompt_cache_key: Any = None

    path: ClassVar[str] = "/v1/chat/completions"

    def as_chat(self) -> list[dict[str, Any]]:
        return self.messages

    def key_parts(self) -> list[Any]:
        """What stands for the prompt where its tokens are not known, tools first as templates
        put them."""
        if self.documents is None:
            return [self.tools, self.messages]
        return [self.tools, self.documents, self.messages]

    @property
    def sequences(self) -> Any:
        return self.n

    @property
    def alters_prompt(self) -> bool:
        """Whether its prompt is made in a way of its own, by vLLM's extensions."""
        return bool(self.add_special_tokens) or not (
            self.chat_template is None and self.truncate_prompt_tokens is None
        )

    @property
    def several(self) -> bool:
        """Whether it is prefilled more than once: an engine's cached tokens are then those of one
        sequence, and which one differs."""
        return self.n not in (None, 1)


class CompletionBody(msgspec.Struct):
    """POST /v1/completions: the prompt is a text, token ids, or a list of either."""

    prompt: str | list[int | str | list[int]]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    suffix: Any = None
    prompt_embeds: Any = None
    add_special_tokens: Any = None
    truncate_prompt_tokens: Any = None
    n: Any = None
    best_of: Any = None
    cache_salt: str | None = None
    prompt_cache_key: Any = None

    path: ClassVar[str] = "/v1/completions"

    def key_parts(self) -> list[Any]:
        return [self.prompt]

    @property
    def sequences(self) -> Any:
        return max((n for n in (self.n, self.best_of) if isinstance(n, int)), default=None)

    @property
    def alters_prompt(self) -> bool:
        return self.add_special_tokens is False or not (
            self.suffix is None
            and self.prompt_embeds is None
            and self.truncate_prompt_tokens is None
        )

    @property
    def several(self) -> bool:
        prompts = self.prompt if isinstance(self.prompt, list) else []
        return self.n not in (None, 1) or (len(prompts) > 1 and not isinstance(prompts[0], int))


Body = ChatBody | CompletionBody | MessagesBody | ResponsesBody


B = TypeVar("B", bound=Body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a request may ask for; beyond it, engines have been stalled or brought down."""

    max_depth: int = 64
    max_messages: int = 10_000
    max_n: int = 128


_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind)
    for kind in (ChatBody, CompletionBody, MessagesBody, ResponsesBody)
}
WORTH_A_LOOK = 4096
"""Bytes; shorter bodies are parsed as fast as they are looked up."""
_WITH_MESSAGES = (ChatBody, MessagesBody)


def parse_chat(raw: bytes, bounds: Bounds, memo: BodyMemo) -> ChatBody:
    """As `parse`, and at less cost where the body begins as an earlier one did."""
    if len(raw) < WORTH_A_LOOK:
        return parse(ChatBody, raw, bounds)
    parted = memo.part(raw)
    if parted is not None:
        body = _parse_rest(parted, raw, bounds, memo)
        if body is not None:
            return body
    body, members = _parse(ChatBody, raw, bounds)
    if members is not None and fills(raw, members):
        memo.learn(raw, None, members, body.messages)
    return body


def _parse_rest(parted: Parted, raw: bytes, bounds: Bounds, memo: BodyMemo) -> ChatBody | None:
    """None where it must be parsed whole: to tell what is wrong with it, or since members may stand
    there twice."""
    try:
        body, members = _parse(ChatBody, parted.rest, bounds)
    except BadRequest:
        return None
    if members is None or not fills(parted.rest, members):
        return None
    body.messages = parted.known + body.messages
    _reject_too_many(body, bounds)
    memo.learn(raw, parted, members, body.messages)
    return body


def parse(kind: type[B], raw: bytes, bounds: Bounds) -> B:
    """Raises BadRequest: not JSON, too deep, too many, a member missing or of the wrong type."""
    return _parse(kind, raw, bounds)[0]


def _parse(kind: type[B], raw: bytes, bounds: Bounds) -> tuple[B, Mapping[str, msgspec.Raw] | None]:
    """With its members; None where only the slow parser reads it."""
    members = None
    try:
        members = _MEMBERS.decode(raw)
        body: B = _DECODERS[kind].decode(raw)
    except RecursionError:
        raise _too_deep(bounds) from None
    except msgspec.ValidationError as error:
        raise _wrong_member(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        if text_exceeds(raw, bounds.max_depth):
            raise _too_deep(bounds) from None
        body = _parse_slowly(kind, raw)
    if members is not None and _nested_too_deep(raw, members, body, bounds.max_depth):
        raise _too_deep(bounds)
    _reject_repeated_model(raw, members)
    _reject_too_many(body, bounds)
    return body, members


def _too_deep(bounds: Bounds) -> BadRequest:
    return BadRequest(f"The request body is nested deeper than {bounds.max_depth} levels.")


def _nested_too_deep(
    raw: bytes, members: Mapping[str, msgspec.Raw], body: Body, limit: int
) -> bool:
    """What was parsed is walked; of members that are not read, the bytes are."""
    if not may_exceed(raw, limit):
        return False
    for name, value in members.items():
        known = getattr(body, name) if name in body.__struct_fields__ else None
        if isinstance(known, dict | list):
            if value_exceeds(known, limit - 1):
                return True
        elif not isinstance(known, str) and text_exceeds(bytes(value), limit - 1):
            return True
    return False


def _reject_too_many(body: Body, bounds: Bounds) -> None:
    if isinstance(body, _WITH_MESSAGES) and len(body.messages) > bounds.max_messages:
        raise BadRequest(f"messages: at most {bounds.max_messages} are allowed.", param="messages")
    sequences = body.sequences
    if isinstance(sequences, int) and sequences > bounds.max_n:
        raise BadRequest(f"n: at most {bounds.max_n} answers are allowed.", param="n")


def _parse_slowly(kind: type[B], raw: bytes) -> B:
    """What msgspec refuses and engines accept: lone surrogates, numbers beyond float."""
    try:
        parsed = json.loads(raw.decode("utf-8"), parse_constant=_reject_constant)
        return msgspec.convert(parsed, kind)
    except msgspec.ValidationError as error:
        raise _wrong_member(error) from None
    except UnicodeDecodeError:
        raise BadRequest("The request body is not UTF-8.") from None
    except ValueError as error:
        # json's message holds a position, never text of the body.
        raise BadRequest(f"The request body is not valid JSON: {error}") from None


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _reject_repeated_model(raw: bytes, members: Mapping[str, msgspec.Raw] | None) -> None:
    """Raises BadRequest if `model` stands there twice: the engine might read the other one."""
    if may_repeat_model(raw, members):
        with _malformed_as_bad_request():
            keys = [member.key for member in members_of(raw.decode("utf-8"))]
        if keys.count("model") > 1:
            raise BadRequest("'model' is given more than once.", param="model")


def named_model(raw: bytes) -> str | None:
    """`model` of a JSON object; None where the body is something else or names none. Raises
    BadRequest if it is given more than once."""
    try:
        members_found = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    name = members_found.get("model") if isinstance(members_found, dict) else None
    _reject_repeated_model(raw, None)
    return name if isinstance(name, str) else None


def with_member(raw: bytes, key: str, value: str) -> bytes:
    """`replace_member`, of a body that a client sent: raises BadRequest where that is malformed."""
    with _malformed_as_bad_request():
        return replace_member(raw, key, value)


@contextmanager
def _malformed_as_bad_request() -> Iterator[None]:
    """The fast parser overlooks what stands in members that it skips."""
    try:
        yield
    except ValueError:
        raise BadRequest("The request body is not valid JSON.") from None


def _wrong_member(error: msgspec.ValidationError) -> BadRequest:
    """msgspec names expected type and place only; neither holds a value of the request."""
    reason, _, where = str(error).partition(" - at `$.")
    param = where.rstrip("`") or None
    if param is None and "missing required field" in reason:
        param = reason.split("`")[1]
    return BadRequest(f"{reason}." if param is None else f"{param}: {reason}.", param=param)
