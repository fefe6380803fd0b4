"""What workers and their parent tell each other, and its bytes: frames of 4 bytes length, 1 byte
kind, 4 bytes sender, then a msgpack list of messages.

What is for the other workers comes in frames of its own, which the parent passes on as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any

import msgspec

from prefold.backends.health import Outcome
from prefold.measurement.record import RequestRecord
from prefold.prefix_index.deltas import Corrected, Finished, Placed
from prefold.proxy import settings as given
from prefold.proxy.settings import Settings

HEAD = struct.Struct("<IBI")
MAX_FRAME = 256 * 1024 * 1024


class Kind(IntEnum):
    PEERS = 1
    PARENT = 2
    ORDERS = 3


class Message(msgspec.Struct, array_like=True, tag=str.lower):
    """To be subclassed."""


# To the other workers.


class Made(Message):
    """A backend made a response."""

    tenant: str
    response_id: str
    backend: str


class Pinned(Message):
    """A backend made a response, seen by another replica: a keyed digest of tenant and id."""

    digest: bytes
    backend: str


class Ended(Message):
    """An exchange with a backend failed, or succeeded after failures."""

    backend: str
    outcome: Outcome
    trial: bool


class Down(Message):
    """A backend says that it is not ready, or nothing listens there."""

    backend: str


class Harmed(Message):
    """A backend broke under the request of this digest; "": it was answered."""

    digest: bytes
    backend: str


class Rated(Message):
    """A prefill was seen to take so long."""

    backend: str
    tokens: int
    seconds: float


class Arranged(Message):
    """Documents of a prompt were put in this order, after this context; by their digests."""

    context: int
    documents: tuple[int, ...]


class Formed(Message):
    """A message of a conversation was sent with these texts compressed; all by their digests."""

    message: bytes
    compressed: tuple[bytes, ...]


class Forgot(Message):
    """Some of the sender's deltas are lost: what it had under way is known to nobody."""


Peers = (
    Placed
    | Finished
    | Corrected
    | Made
    | Pinned
    | Ended
    | Down
    | Harmed
    | Rated
    | Arranged
    | Formed
    | Forgot
)


# To the parent.


class Listening(Message):
    """The worker serves."""


class Wanted(Message):
    """What does this backend hold?"""

    backend: str


class Recorded(Message):
    record: RequestRecord


class Status(Message):
    """How things are with a worker, told every second. `modes`: of each backend, with the reason;
    `believed` and `capacities`: tokens; `tokenizers`: by model; requests `waiting` for a
    place; `lost` records since it started; `errors` of prediction, as shares, by backend."""

    modes: dict[str, tuple[str, str]]
    believed: dict[str, int]
    tokenizers: dict[str, dict[str, int]]
    waiting: int
    lost: int
    errors: dict[str, float] = {}
    capacities: dict[str, int] = {}


Parent = Listening | Wanted | Recorded | Status


# From the parent.


class Start(Message):
    """The first one. `rows`: of the table; `slots`: where in it a backend's numbers are.
    `compression`: as it was set since the settings were first read."""

    settings: Settings
    number: int
    rows: int
    log_level: int
    slots: dict[str, int]
    compression: given.Compression | None = None


class Backends(Message):
    """Those there are from now on, the arms, and how prompts are compressed."""

    backends: tuple[given.Backend, ...]
    slots: dict[str, int]
    arms: tuple[given.Arm, ...] = ()
    compression: given.Compression = given.Compression()


class Emptied(Message):
    """A backend lost its cache."""

    backend: str


class Gone(Message):
    """A worker has died, or lost what it had to tell."""

    source: int


Orders = Start | Backends | Emptied | Gone

_ENCODER = msgspec.msgpack.Encoder()
_DECODERS: Mapping[Kind, msgspec.msgpack.Decoder[Any]] = {
    Kind.PEERS: msgspec.msgpack.Decoder(list[Peers]),
    Kind.PARENT: msgspec.msgpack.Decoder(list[Parent]),
    Kind.ORDERS: msgspec.msgpack.Decoder(list[Orders]),
}


class Frame(msgspec.Struct, frozen=True):
    kind: Kind
    source: int
    payload: bytes

    def messages(self) -> Sequence[Peers | Parent | Orders]:
        """Raises msgspec.MsgspecError."""
        read: Sequence[Peers | Parent | Orders] = _DECODERS[self.kind].decode(self.payload)
        return read

    def encoded(self) -> bytes:
        return HEAD.pack(len(self.payload), self.kind, self.source) + self.payload


def frame(kind: Kind, source: int, messages: Sequence[Peers | Parent | Orders]) -> Frame:
    return Frame(kind, source, _ENCODER.encode(messages))


class FrameReader:
    """Frames out of a stream's pieces. Mutable."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Raises ValueError for what is no frame."""
        self._buffer += data
        while len(self._buffer) >= HEAD.size:
            length, kind, source = HEAD.unpack_from(self._buffer)
            if length > MAX_FRAME:
                raise ValueError(f"a frame of {length} bytes")
            end = HEAD.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[HEAD.size : end])
            del self._buffer[:end]
            yield Frame(Kind(kind), source, payload)
