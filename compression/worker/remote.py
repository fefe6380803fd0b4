"""A compressor behind HTTP (`prefold compress-server`), used as a process of our own is.

`GET /compressor` says what it is, `POST /compress` takes texts and rates and gives spans:

    {"jobs": [["a text", 0.5]]}  ->  {"digest": "...", "kept": [[0, 6]], "failed": {}}

A null in `kept` is a text that it could not do; `failed` has a word why, by its number. An answer
under another digest is not used: it is another compressor by now.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import aiohttp
import msgspec

from prefold.compression.worker.child import CannotOpen, ChildGone
from prefold.compression.worker.messages import Done, Ready

CONNECT_S = 5.0


class Jobs(msgspec.Struct, frozen=True):
    jobs: list[tuple[str, float]]


class Answered(msgspec.Struct, frozen=True):
    digest: str
    kept: list[list[int] | None]
    failed: dict[int, str] = {}


class Described(msgspec.Struct, frozen=True):
    """As Ready."""

    name: str
    digest: str
    chars_per_s: float


Answer = TypeVar("Answer", Described, Answered)


class Remote:
    pid = 0  # none of ours

    def __init__(self, session: aiohttp.ClientSession, ready: Ready) -> None:
        self._session = session
        self.ready = ready

    async def compress(self, jobs: Sequence[tuple[str, float]]) -> Done:
        """Raises ChildGone."""
        body = msgspec.json.encode(Jobs(list(jobs)))
        answer = await _asked(self._session, "POST", "/compress", Answered, body)
        if answer.digest != self.ready.digest or len(answer.kept) != len(jobs):
            raise ChildGone("it answered as another compressor", "another")
        return Done(answer.kept, answer.failed)


@asynccontextmanager
async def connected(url: str, api_key: str) -> AsyncIterator[Remote]:
    """`api_key` "": none is sent. Raises ChildGone, and CannotOpen where the key is refused."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    # How long an answer may take, whoever asks says.
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
    async with aiohttp.ClientSession(url, headers=headers, timeout=timeout) as session:
        described = await _asked(session, "GET", "/compressor", Described)
        ready = Ready(described.name, described.digest, max(described.chars_per_s, 1.0))
        yield Remote(session, ready)


async def _asked(
    session: aiohttp.ClientSession, method: str, path: str, kind: type[Answer], body: bytes = b""
) -> Answer:
    try:
        async with session.request(method, path, data=body, allow_redirects=False) as response:
            raw = await response.read()
    except (aiohttp.ClientError, OSError) as error:
        why = f"it cannot be reached: {type(error).__name__}"
        raise ChildGone(why, "unreachable") from None
    if response.status in (401, 403):
        raise CannotOpen("it refuses compression.api_key")
    if response.status != 200:
        why = f"it answered with status {response.status}"
        raise ChildGone(why, f"status_{response.status}")
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError:
        raise ChildGone("it answered something else", "nonsense") from None
