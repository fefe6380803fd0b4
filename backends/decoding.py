"""Bodies that an upstream compressed although it was asked not to: decoded piece by piece.

Pure. One decoder for a whole body: a piece may end anywhere in the compressed form.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from prefold.backends.errors import UpstreamDisconnected

STEP_IN = 16 * 1024
STEP_OUT = 64 * 1024
GZIP_OR_ZLIB = zlib.MAX_WBITS | 32  # it tells by the header which of the two it is
RAW_DEFLATE = -zlib.MAX_WBITS
GZIP = frozenset(("gzip", "x-gzip"))


class Decoder:
    """Mutable; one for each body. `steps` for each piece as it comes, `finish` at the end. Both
    raise UpstreamDisconnected for what is no compressed body or not all of one."""

    def __init__(self, coding: str) -> None:
        """Raises UpstreamDisconnected for a coding other than gzip and deflate."""
        if coding not in GZIP and coding != "deflate":
            raise UpstreamDisconnected("a coding that was not asked for")
        self._gzip = coding in GZIP
        self._zlib = zlib.decompressobj(GZIP_OR_ZLIB) if self._gzip else None
        self._head = b""
        self._empty = True

    def steps(self, piece: bytes) -> Iterator[bytes]:
        """Decoded bytes, at most `STEP_OUT` at a time, so that what inflates a thousandfold is
        never held whole."""
        for start in range(0, len(piece), STEP_IN):
            try:
                yield from self._inflated(piece[start : start + STEP_IN])
            except zlib.error as error:
                raise UpstreamDisconnected("a compressed body that is broken") from error

    def finish(self) -> None:
        """The body is over. One without any bytes is whole: there was nothing to compress."""
        if not self._empty and (self._zlib is None or not self._zlib.eof):
            raise UpstreamDisconnected("a compressed body that was cut")

    def _inflated(self, data: bytes) -> Iterator[bytes]:
        self._empty = False
        if self._zlib is None:
            self._head += data
            if len(self._head) < 2:
                return
            data = self._head
            self._zlib = zlib.decompressobj(_deflate_form(data))
        while True:
            if self._zlib.eof:
                if not data:
                    return
                if not self._gzip:
                    raise zlib.error("bytes after the end")
                self._zlib = zlib.decompressobj(GZIP_OR_ZLIB)  # gzip may come in several members
            decoded = self._zlib.decompress(data, STEP_OUT)
            if decoded:
                yield decoded
            data = self._zlib.unused_data if self._zlib.eof else self._zlib.unconsumed_tail
            # A full step may have left something that needs no further input.
            if not data and len(decoded) < STEP_OUT:
                return


def _deflate_form(head: bytes) -> int:
    """Some servers mean the bare form by "deflate", others the one with zlib's two-byte header."""
    wrapped = head[0] & 0x0F == 8 and int.from_bytes(head[:2], "big") % 31 == 0
    return GZIP_OR_ZLIB if wrapped else RAW_DEFLATE
