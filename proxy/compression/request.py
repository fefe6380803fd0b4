"""What compression is given of a request, and what it gives back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from prefold.backends.backend import Mode
from prefold.measurement.record import RequestRecord
from prefold.proxy.prompt import Prompt


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """`tenant` as the key says; `arm`: the mode of its arm, "" for none of its own; `seed` parts
    what engines keep apart. `encode` makes the prompt of another body."""

    raw: bytes
    model: str
    headers: Mapping[str, str]
    tenant: str
    arm: str
    seed: int
    prompt: Prompt
    encode: Callable[[bytes], Awaitable[Prompt]]
    record: RequestRecord


class Sent(msgspec.Struct, frozen=True):
    """What is to be sent, and what the client is told of it."""

    raw: bytes
    prompt: Prompt
    told: str


def tokens_of(prompt: Prompt) -> int:
    """As far as is known at once."""
    return prompt.prefix(Mode.FEEDBACK).length


async def all_tokens_of(prompt: Prompt) -> int:
    """In its own tokens, all of it; raises NotEncodable."""
    if prompt.whole is not None:
        return (await asyncio.shield(prompt.whole)).length
    return tokens_of(prompt)
