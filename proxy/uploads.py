"""Multipart bodies (audio, files) pass on as they come: they are too large to be held."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from prefold.proxy.errors import TooLarge
from prefold.proxy.http.body import Body
from prefold.proxy.http.request import Request

PEEK_BYTES = 64 * 1024
# The value of the form field `model`, whatever further headers its part has.
_MODEL = re.compile(
    rb'; ?name=(?:"model"|model)(?:;[^\r\n]*)?\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]{1,512})\r\n'
)


def is_upload(request: Request) -> bool:
    return request.content_type == "multipart/form-data"


def named_in(head: bytes) -> str | None:
    """The `model` of a form that begins so; None as long as it is not there."""
    found = _MODEL.search(head)
    return None if found is None else found[1].decode("utf-8", "replace").strip()


class Upload:
    """A body of which the first bytes are here. `chunks` once."""

    def __init__(self, body: Body, max_bytes: int) -> None:
        self._length = body.length
        self._rest = body.chunks()
        self._max = max_bytes
        self._head = b""

    async def peek(self) -> str | None:
        """The form's `model`, if it stands in the first 64 KiB; else a field after the file may
        name it. Raises TooLarge."""
        if self._length is not None and self._length > self._max:
            raise self._too_large()
        while len(self._head) < PEEK_BYTES and named_in(self._head) is None:
            piece = await anext(self._rest, b"")
            if not piece:
                break
            self._head += piece
        return named_in(self._head)

    def rename(self, model: str) -> None:
        """Another value for the form's `model`, which was found by `peek`."""
        found = _MODEL.search(self._head)
        if found is not None:
            start, end = found.span(1)
            self._head = self._head[:start] + model.encode() + self._head[end:]

    async def chunks(self) -> AsyncIterator[bytes]:
        """Raises TooLarge beyond the limit."""
        sent = len(self._head)
        yield self._head
        async for piece in self._rest:
            sent += len(piece)
            if sent > self._max:
                raise self._too_large()
            yield piece

    def _too_large(self) -> TooLarge:
        return TooLarge(f"An upload of at most {self._max} bytes is allowed.")
