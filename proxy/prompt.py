"""A request's prompt as the index sees it: exact token ids, or bytes where those are unknown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from prefold.backends.backend import Mode
from prefold.prefix_index.chain_memo import ChainMemo
from prefold.prefix_index.prefix import Prefix
from prefold.proxy.errors import BadRequest, NotEncodable
from prefold.proxy.messages import MessagesBody
from prefold.proxy.openai import Body, ChatBody
from prefold.proxy.responses import ResponsesBody
from prefold.proxy.tokens.chat_request import Chat
from prefold.proxy.tokens.encoder import Beginning, Encoder
from prefold.proxy.tokens.token_libraries import TokenIds

BYTES_PER_UNIT = 4  # about one token of English text
MAX_APPROXIMATE_BYTES = 1 << 20
MAX_MEDIA_CHARS = 128
MEDIA_TOKENS = 1024
"""What an image or a sound weighs: models make some hundreds of tokens of one, or thousands."""


class Prompt(msgspec.Struct, frozen=True):
    """One prefix for each mode among the candidates; `tokens` is None if no exact ids were made.

    `whole`: of exact ids only the beginning is known yet, and nothing after it can be in a cache;
    it becomes the prefix of all of it, or fails with NotEncodable."""

    prefixes: Mapping[Mode, Prefix]
    tokens: int | None
    whole: asyncio.Future[Prefix] | None = None
    after: int = 0
    """A key of how it goes on after the beginning, where only that is known."""
    affinity: int | None = None
    """Settles near-ties in place of how it begins; it never changes what is expected where."""

    def prefix(self, mode: Mode) -> Prefix:
        """For a mode that came up during the encoding, any other one: no match, no harm."""
        return self.prefixes.get(mode) or next(iter(self.prefixes.values()))


async def encode(
    body: Body,
    encoder: Encoder | None,
    seed: int,
    modes: set[Mode],
    memo: ChainMemo,
    engine_seed: int | None = None,
    *,
    affinity: int | None = None,
    parts: list[Any] | None = None,
) -> Prompt:
    """`engine_seed` parts what engines themselves keep apart; there is one where a candidate is in
    mode `events`. `affinity` as in Prompt; `parts` in place of the body's, where its bytes stand
    for tokens. Raises BadRequest if the prompt is of no form that an engine accepts."""
    prefixes: dict[Mode, Prefix] = {}
    exact: Beginning | None = None
    whole: asyncio.Future[Prefix] | None = None
    if encoder is not None and (Mode.FEEDBACK in modes or engine_seed is not None):
        exact = await _token_ids(body, encoder)
    if engine_seed is not None and exact is not None and exact.whole is not None:
        # New to us is not new to an engine: others may have sent it there, and its events say so.
        exact = await _all_later(exact.whole)
    if exact is not None:
        prefixes[Mode.FEEDBACK] = Prefix.of_tokens(exact.ids, seed, memo, length=exact.length)
        if engine_seed is not None:
            prefixes[Mode.EVENTS] = Prefix.of_tokens(exact.ids, engine_seed, memo)
        if exact.whole is not None:
            whole = asyncio.ensure_future(_prefix_of(exact.whole, seed, memo))
            # Where no backend takes the request, nobody else looks at how it ended.
            whole.add_done_callback(lambda done: done.cancelled() or done.exception())
    if exact is None or Mode.APPROXIMATE in modes:
        # Also where this one prompt cannot be encoded (an image, say): its bytes then stand for
        # tokens on every backend, and never match the ids of another prompt.
        approximate = Prefix.of_tokens(approximate_units(body, parts), seed, memo)
        for mode in (modes - prefixes.keys()) or {Mode.APPROXIMATE}:
            prefixes[mode] = approximate
    if exact is None:
        return Prompt(prefixes, None, affinity=affinity)
    return Prompt(prefixes, exact.length, whole, exact.after, affinity)


async def _prefix_of(ids: asyncio.Future[TokenIds], seed: int, memo: ChainMemo) -> Prefix:
    return Prefix.of_tokens(await ids, seed, memo)


def _all(ids: TokenIds) -> Beginning:
    return Beginning(ids, len(ids), None)


async def _all_later(ids: asyncio.Future[TokenIds]) -> Beginning | None:
    try:
        return _all(await ids)
    except NotEncodable:
        return None


async def _token_ids(body: Body, encoder: Encoder) -> Beginning | None:
    try:
        if isinstance(body, MessagesBody | ResponsesBody):
            messages = body.as_chat()
            return None if messages is None else await encoder.begin_chat(Chat(messages=messages))
        if body.alters_prompt:
            return None
        if isinstance(body, ChatBody):
            chat = Chat(
                messages=body.messages,
                tools=body.tools,
                extra=body.chat_template_kwargs or {},
                add_generation_prompt=body.add_generation_prompt,
                continue_final_message=body.continue_final_message,
                documents=body.documents,
                reasoning_effort=body.reasoning_effort,
            )
            return await encoder.begin_chat(chat)
        if isinstance(body.prompt, str):
            return _all(await encoder.encode_text(body.prompt))
        return _all(await _first_of_list(body.prompt, encoder))
    except NotEncodable:
        return None


async def _first_of_list(
    prompt: list[int | str | list[int]], encoder: Encoder
) -> NDArray[np.uint32]:
    """Token ids as given; of several prompts, the first one stands for all."""
    if not prompt:
        raise BadRequest("'prompt' must not be empty.", param="prompt")
    first = prompt[0]
    if isinstance(first, str):
        return await encoder.encode_text(first)
    ids = prompt if isinstance(first, int) else first
    try:
        return np.array(ids, dtype=np.uint32)
    except (OverflowError, ValueError, TypeError):
        raise BadRequest("'prompt' holds an invalid token id.", param="prompt") from None


def approximate_units(body: Body, parts: list[Any] | None = None) -> NDArray[np.uint32]:
    """The prompt's JSON, tools first as templates put them, four bytes to a unit. Images and other
    media stand there as digests: all of each counts, none fills the key, and what two of them have
    in common is next to nothing. `parts`: in place of the body's own."""
    parts = body.key_parts() if parts is None else parts
    raw = b"".join([_json(media_as_digests(part)) for part in parts])
    # The last byte closes a list or a text that a longer prompt would go on with.
    units = min(len(raw) - 1, MAX_APPROXIMATE_BYTES) // BYTES_PER_UNIT
    return np.frombuffer(raw, dtype=np.uint32, count=units)


def media_as_digests(value: Any) -> Any:
    """A list of messages or items, with the long texts of parts that are not text replaced."""
    if not isinstance(value, list):
        return value
    return [_digested_message(item) if isinstance(item, dict) else item for item in value]


def _digested_message(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [_digested(part) for part in content]}


def _digested(part: Any) -> Any:
    """Inside a part of a message: all long texts but those of its member `text`."""
    if isinstance(part, str) and len(part) > MAX_MEDIA_CHARS:
        digest = blake2b(part.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        return digest * (MEDIA_TOKENS * BYTES_PER_UNIT // len(digest))
    if isinstance(part, dict):
        return {key: one if key == "text" else _digested(one) for key, one in part.items()}
    return [_digested(one) for one in part] if isinstance(part, list) else part


def _json(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(value).encode()
