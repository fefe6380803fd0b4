"""A request's body: fed by its connection, read once by its handler, bounded at every step."""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable

from prefold.proxy.errors import BadRequest, TooLarge, UnsupportedCoding

HIGH_WATER = 256 * 1024
"""Bytes that may lie here before the client is made to wait."""
CODINGS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""Window bits for zlib."""
STEP = 64 * 1024


class Body:
    """Mutable. `pause` stops the client from sending, `resume` lets it go on, `wanted` is called
    when somebody waits for bytes that are not here (100 Continue)."""

    def __init__(
        self,
        *,
        length: int | None,
        coding: str,
        pause: Callable[[], None],
        resume: Callable[[], None],
        wanted: Callable[[], None],
    ) -> None:
        self.length = length
        """As announced; None for chunks."""
        self._coding = coding.strip().lower()
        self._pause = pause
        self._resume = resume
        self._wanted = wanted
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._bound = HIGH_WATER
        self._waiter: asyncio.Future[None] | None = None
        self.complete = False
        self._broken = False

    def feed(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > self._bound:
            self._pause()
        self._wake()

    def end(self) -> None:
        self.complete = True
        self._wake()

    def fail(self) -> None:
        """The rest of it cannot be read."""
        self._broken = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def read(self, limit: int) -> bytes:
        """All of it, decoded; raises TooLarge beyond `limit` bytes (decoded), BadRequest or
        UnsupportedCoding."""
        if self.length is not None and self.length > limit:
            raise _too_large(limit)
        self._bound = limit
        while not self.complete:
            if self._size > limit:
                raise _too_large(limit)
            await self._more()
        if self._size > limit:
            raise _too_large(limit)
        raw = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        return raw if self._coding in ("", "identity") else _decoded(raw, self._coding, limit)

    async def chunks(self) -> AsyncIterator[bytes]:
        """As it comes, not decoded; the client sends no faster than this is read."""
        while True:
            while self._pieces:
                piece = self._pieces.popleft()
                self._size -= len(piece)
                yield piece
            if self.complete:
                return
            await self._more()

    async def _more(self) -> None:
        self._wanted()
        self._resume()
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            if not self._broken:
                await self._waiter
        finally:
            self._waiter = None
        if self._broken:
            raise BadRequest("The request body could not be read.")


def _decoded(raw: bytes, coding: str, limit: int) -> bytes:
    """A few KiB may become a few GiB: each step makes 64 KiB at most, one too many ends it."""
    bits = CODINGS.get(coding)
    if bits is None:
        raise UnsupportedCoding("The request body's Content-Encoding is not supported.")
    decoder = zlib.decompressobj(bits)
    pieces, size = [], 0
    try:
        pending = raw
        while not decoder.eof:
            piece = decoder.decompress(pending, STEP)
            pending = decoder.unconsumed_tail
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            pieces.append(piece)
            if not piece and not pending:
                break
    except zlib.error:
        raise BadRequest("The request body could not be decoded.") from None
    if not decoder.eof or decoder.unused_data:
        raise BadRequest("The request body could not be decoded.")
    return b"".join(pieces)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The request body is larger than {limit} bytes.")
