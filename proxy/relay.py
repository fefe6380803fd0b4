"""Copying an answer that is not understood to the client: its bytes, and nothing but its framing is
judged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from prefold.backends.errors import BackendError
from prefold.proxy.http.answer import Answer


async def send_whole(out: Answer, body: bytes, write_s: float) -> None:
    """Raises ClientGone where the client has left, or does not read for `write_s` seconds."""
    out.end(body)
    if out.waiting:
        await out.drained(write_s)


async def send_raw(
    out: Answer, first: bytes, chunks: AsyncIterator[bytes], write_s: float
) -> BackendError | None:
    """As it comes; aborted if the upstream's is cut. Raises ClientGone."""
    try:
        await _send(out, first, write_s)
        async for chunk in chunks:
            await _send(out, chunk, write_s)
    except BackendError as error:
        out.abort()
        return error
    except asyncio.CancelledError:
        out.abort()
        raise
    await send_whole(out, b"", write_s)
    return None


async def _send(out: Answer, data: bytes, write_s: float) -> None:
    if not out.write(data) or not out.open:
        await out.drained(write_s)
