"""What the proxy and a compressor's process say to each other, and how it is framed.

A frame is its length in four bytes and then MessagePack. Neither side need trust the other: a frame
that is none, or too long, is an error of the one that reads it.
"""

from __future__ import annotations

import msgspec

from prefold.compression.catalog import CompressorChoice
from prefold.compression.protect import Protection

LENGTH_BYTES = 4
MAX_FRAME_BYTES = 1 << 28


class Open(msgspec.Struct, frozen=True, tag=True):
    """The first order: which compressor it is to be."""

    choice: CompressorChoice
    protection: Protection


class Batch(msgspec.Struct, frozen=True, tag=True):
    """Texts with the share of each that is to be kept."""

    jobs: list[tuple[str, float]]


class Ready(msgspec.Struct, frozen=True, tag=True):
    """`digest` names compressor and protection: what decides the output for a text and a rate.
    `chars_per_s` is how fast it was with a text of its own."""

    name: str
    digest: str
    chars_per_s: float


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The compressor cannot be opened; `reason` is for people."""

    reason: str


class Failed(msgspec.Struct, frozen=True, tag=True):
    """It ends now: what it works with has failed. `cause` is for a metric, `reason` for people."""

    cause: str
    reason: str


class Done(msgspec.Struct, frozen=True, tag=True):
    """For each job the kept spans, flat: start, end, start, end...; None where it failed. `failed`
    has the kinds of these failures, by the number of the job: class names, no messages."""

    kept: list[list[int] | None]
    failed: dict[int, str] = {}


_encode = msgspec.msgpack.Encoder().encode
_order = msgspec.msgpack.Decoder(Open | Batch)
_report = msgspec.msgpack.Decoder(Ready | Refused | Failed | Done)


def framed(message: Open | Batch | Ready | Refused | Failed | Done) -> bytes:
    """Raises ValueError if it is too long, or a text is none (a lone surrogate)."""
    body = _encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError("too long a frame")
    return len(body).to_bytes(LENGTH_BYTES) + body


def order_of(body: bytes) -> Open | Batch:
    """Raises ValueError (msgspec's errors are such)."""
    order: Open | Batch = _order.decode(body)
    return order


def report_of(body: bytes) -> Ready | Refused | Failed | Done:
    """Likewise."""
    report: Ready | Refused | Failed | Done = _report.decode(body)
    return report
