"""What replicas tell each other, and in which of three streams. Names of backends are digests here.

Deltas and pins are kept for a while, for replicas that start later. Loads are of the moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from prefold.prefix_index.deltas import Corrected, Finished, Placed
from prefold.proxy.workers.messages import Emptied, Forgot, Formed, Message, Pinned


class Loads(Message):
    """Of each backend where the sender has something: its requests, and their queued tokens. What
    it does not name, it has nothing at."""

    backends: tuple[tuple[str, int, int], ...]


Told = Placed | Finished | Corrected | Emptied | Forgot | Formed | Pinned | Loads


class Stream(StrEnum):
    """The first four letters differ: they are in the nonce of what is sealed."""

    DELTAS = "deltas"
    LOADS = "loads"
    PINS = "pins"


VERSION = 1
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Told])
_VERSION = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])


class OtherVersion(Exception):
    """A replica of another version of this format."""


def stream_of(message: Told) -> Stream:
    if isinstance(message, Loads):
        return Stream.LOADS
    return Stream.PINS if isinstance(message, Pinned) else Stream.DELTAS


def encode(messages: Sequence[Told]) -> bytes:
    return _ENCODER.encode((VERSION, messages))


def decode(content: bytes) -> Sequence[Told]:
    """Raises OtherVersion."""
    try:
        version, messages = _VERSION.decode(content)
        if version == VERSION:
            return _DECODER.decode(messages)
    except msgspec.MsgspecError:
        pass
    raise OtherVersion


def size(message: Told) -> int:
    """About its bytes."""
    return 64 + (len(message.units) if isinstance(message, Placed) else 0)
