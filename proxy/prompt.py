"""A request's prompt as the index sees it: exact token ids, or bytes where those are unknown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from prefold.backends.backend import Mode
from prefold.prefix_index.prefix import Prefix
from prefold.proxy.errors import BadRequest, NotEncodable
from prefold.proxy.openai import Body, ChatBody
from prefold.proxy.tokens.encoder import Encoder

BYTES_PER_UNIT = 4  # about one token of English text
MAX_APPROXIMATE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prefix for each mode among the candidates; `tokens` is None if no exact ids were made."""

    prefixes: Mapping[Mode, Prefix]
    tokens: int | None

    def prefix(self, mode: Mode) -> Prefix:
        """For a mode that came up during the encoding, any other one: no match, no harm."""
        return self.prefixes.get(mode) or next(iter(self.prefixes.values()))


async def encode(body: Body, encoder: Encoder | None, seed: int, modes: set[Mode]) -> Prompt:
    """Raises BadRequest if the prompt is of no form that an engine accepts."""
    prefixes: dict[Mode, Prefix] = {}
    exact: NDArray[np.uint32] | None = None
    if Mode.FEEDBACK in modes and encoder is not None:
        exact = await _token_ids(body, encoder)
    if exact is not None:
        prefixes[Mode.FEEDBACK] = Prefix.of_tokens(exact, seed)
    if exact is None or Mode.APPROXIMATE in modes:
        # Also where this one prompt cannot be encoded (an image, say): its bytes then stand for
        # tokens on every backend, and never match the ids of another prompt.
        approximate = Prefix.of_tokens(approximate_units(body), seed)
        for mode in (modes - prefixes.keys()) or {Mode.APPROXIMATE}:
            prefixes[mode] = approximate
    return Prompt(prefixes, None if exact is None else len(exact))


async def _token_ids(body: Body, encoder: Encoder) -> NDArray[np.uint32] | None:
    if body.alters_prompt:
        return None
    try:
        if isinstance(body, ChatBody):
            return await encoder.encode_chat(
                body.messages,
                body.tools,
                body.chat_template_kwargs or {},
                add_generation_prompt=body.add_generation_prompt,
                continue_final_message=body.continue_final_message,
                documents=body.documents,
                reasoning_effort=body.reasoning_effort,
            )
        if isinstance(body.prompt, str):
            return await encoder.encode_text(body.prompt)
        return await _first_of_list(body.prompt, encoder)
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


def approximate_units(body: Body) -> NDArray[np.uint32]:
    """The prompt's JSON, tools first as templates put them, four bytes to a unit."""
    raw = (
        _json(body.tools) + _json(body.messages)
        if isinstance(body, ChatBody)
        else _json(body.prompt)
    )
    # The last byte closes a list or a text that a longer prompt would go on with.
    units = min(len(raw) - 1, MAX_APPROXIMATE_BYTES) // BYTES_PER_UNIT
    return np.frombuffer(raw, dtype=np.uint32, count=units)


def _json(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(value).encode()
