"""What is kept of a text, as it stands in Redis: sealed, and bound to the key of its text. No I/O.

Offsets only. Whoever can write to Redis can make nobody cut a text otherwise: a value that is not
ours, or is another text's, is told from the one that was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Annotated

import msgspec

from prefold.compression.segment_cache import Kept, kept_of
from prefold.proxy.replicas.seal import Seal, Unreadable

VERSION = 1
MAX_BYTES = 256 * 1024
"""Of a value: a text of well over a million characters. What takes more is not shared."""
STREAM = "kept"
"""In the nonces of values."""

Content = tuple[int, bytes, int, list[Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]]]
"""Version, key, length of the text, and how far each offset is after the one before it."""
_DECODER = msgspec.msgpack.Decoder(Content)
_ENCODER = msgspec.msgpack.Encoder()


class SealedKept:
    """Mutable: it counts what it sealed, since no number may come twice."""

    def __init__(self, seal: Seal) -> None:
        """`seal` is for nothing else."""
        self._seal = seal
        self._number = 0

    def close(self, key: bytes, kept: Kept, length: int) -> bytes | None:
        """Of a text of `length` characters; None: it takes too much."""
        steps = [after - before for before, after in pairwise((0, *kept.spans))]
        self._number += 1
        plain = _ENCODER.encode((VERSION, key, length, steps))
        made = self._seal.close(STREAM, self._number, plain)
        return made if len(made) <= MAX_BYTES else None

    def open(self, key: bytes, length: int, content: bytes) -> Kept:
        """Raises Unreadable for all that is not what `close` made for this text, somewhere."""
        if len(content) > MAX_BYTES:
            raise Unreadable
        _, _, plain = self._seal.open(STREAM, content)
        try:
            version, of, chars, steps = _DECODER.decode(plain)
        except msgspec.MsgspecError:
            raise Unreadable from None
        spans: Sequence[int] = list(accumulate(steps))
        kept = kept_of(spans, length)
        if kept is None or (version, of, chars) != (VERSION, key, length):
            raise Unreadable
        return kept
