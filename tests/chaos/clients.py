"""Clients as they are: they stream, leave, read slowly and err; each says how its request ended.

A client knows the whole text that it must get, so that an event lost, doubled or moved is seen.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import aiohttp
import msgspec

from tests.chaos import slow_reader
from tests.chaos.dialects import Ask, Dialect

BOUND_S = 30.0
"""No exchange may take longer: connecting, queueing, two attempts and a stream together."""


class Kind(StrEnum):
    STREAM = "stream"
    WHOLE = "whole"
    SLOW = "slow reader"
    LEAVES = "leaves in the stream"
    LEAVES_EARLY = "leaves before the answer"
    MISTAKE = "client's mistake"
    UPSTREAM_ERROR = "upstream's error"


WEIGHTS = {
    Kind.STREAM: 45,
    Kind.WHOLE: 20,
    Kind.SLOW: 4,
    Kind.LEAVES: 8,
    Kind.LEAVES_EARLY: 5,
    Kind.MISTAKE: 10,
    Kind.UPSTREAM_ERROR: 8,
}


class End(StrEnum):
    COMPLETE = "complete"
    ASKED_STATUS = "the error that was asked for"
    CUT = "error event, then abort"
    LEFT = "client left"
    # What follows must not be. Error answers that nobody asked for are counted by their status.
    INCOMPLETE = "clean but incomplete"
    WRONG_TEXT = "wrong text"
    SILENT_ABORT = "abort without an error event"
    NO_ERROR_OBJECT = "error without an error object"
    NO_ANSWER = "connection lost before an answer"
    HUNG = "no end within the bound"


ENDS_THAT_ARE_FAULTS = frozenset(
    (
        End.INCOMPLETE,
        End.WRONG_TEXT,
        End.SILENT_ABORT,
        End.NO_ERROR_OBJECT,
        End.NO_ANSWER,
        End.HUNG,
    )
)
FAULTS_OF_BACKENDS = frozenset((502, 503, 504))
"""Statuses that a sound request may get while backends fail."""


@dataclass(slots=True)
class Tally:
    """Mutable: what the clients saw."""

    requests: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    """Of error answers that nobody asked for."""
    faults: Counter[str] = field(default_factory=Counter)
    """Ends that must not be, by what the client was doing."""

    def take(self, kind: Kind, end: End | int) -> None:
        self.requests[kind] += 1
        if isinstance(end, End):
            self.ends[end] += 1
            if end in ENDS_THAT_ARE_FAULTS:
                self.faults[f"{kind}: {end}"] += 1
        else:
            self.statuses[end] += 1


class Load:
    """Closed loops against one proxy, each until `stop` is set; made by `connected`."""

    def __init__(self, url: str, dialect: Dialect, http: aiohttp.ClientSession) -> None:
        self._url = f"{url}/v1/chat/completions"
        self._dialect = dialect
        self._http = http
        self.tally = Tally()

    async def worker(self, seed: int, stop: asyncio.Event) -> None:
        rng = random.Random(seed)
        while not stop.is_set():
            [kind] = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
            await self.one(kind, rng)

    async def one(self, kind: Kind, rng: random.Random) -> None:
        end: End | int
        try:
            async with asyncio.timeout(BOUND_S):
                end = await self._exchange(kind, rng)
        except TimeoutError:
            end = End.HUNG
        except (aiohttp.ClientError, OSError):
            end = End.NO_ANSWER
        self.tally.take(kind, end)

    async def _exchange(self, kind: Kind, rng: random.Random) -> End | int:
        if kind is Kind.MISTAKE:
            return await self._mistake(rng)
        ask = self._dialect.ask(
            rng,
            streamed=kind not in (Kind.WHOLE, Kind.UPSTREAM_ERROR),
            long=kind is Kind.SLOW,
            status=rng.choice((400, 422, 429, 503)) if kind is Kind.UPSTREAM_ERROR else 200,
        )
        if kind is Kind.LEAVES_EARLY:
            return await self._leave_early(ask, rng)
        if kind is Kind.SLOW:
            return await self._read_slowly(ask)
        async with self._http.post(self._url, json=ask.body) as answer:
            if answer.status != 200:
                return end_of_error(answer.status, await answer.read(), ask.status)
            if kind is Kind.WHOLE:
                return await self._whole(answer, ask)
            leave_after = rng.randrange(1, 10) if kind is Kind.LEAVES else None
            return await self._stream(answer, ask, leave_after)

    async def _mistake(self, rng: random.Random) -> End | int:
        body, status = rng.choice(
            (
                (b"{", 400),
                (b'{"model": 1, "messages": []}', 400),
                (b'{"messages": "hello"}', 400),
                (b"[" * 200 + b"]" * 200, 400),
                (b'{"model": "unknown", "messages": []}', 404),
            )
        )
        headers = {"Content-Type": "application/json"}
        async with self._http.post(self._url, data=body, headers=headers) as answer:
            return end_of_error(answer.status, await answer.read(), status, OWN_ERROR)

    async def _leave_early(self, ask: Ask, rng: random.Random) -> End:
        """The connection closes before there is an answer, or with the first of it."""
        try:
            async with (
                asyncio.timeout(rng.uniform(0.001, 0.03)),
                self._http.post(self._url, json=ask.body) as answer,
            ):
                answer.close()
        except TimeoutError:
            pass
        return End.LEFT

    async def _read_slowly(self, ask: Ask) -> End | int:
        answer = await slow_reader.post(self._url, ask.body)
        if answer.status != 200:
            return end_of_error(answer.status, answer.body, ask.status)
        view = StreamView()
        for event in answer.body.split(b"\n\n")[:-1]:
            view.take(event)
        return view.end(ask, aborted=not answer.whole)

    async def _whole(self, answer: aiohttp.ClientResponse, ask: Ask) -> End:
        try:
            value = msgspec.json.decode(await answer.read())
        except aiohttp.ClientPayloadError:
            return End.CUT  # a cut body of a known length is an error to every client
        return End.COMPLETE if ask.answered_by([value]) else End.WRONG_TEXT

    async def _stream(
        self, answer: aiohttp.ClientResponse, ask: Ask, leave_after: int | None
    ) -> End:
        view = StreamView()
        buffer = b""
        try:
            while chunk := await answer.content.readany():
                *events, buffer = (buffer + chunk).split(b"\n\n")
                for event in events:
                    view.take(event)
                if leave_after is not None and len(view.events) >= leave_after:
                    answer.close()
                    return End.LEFT
        except aiohttp.ClientPayloadError:
            return view.end(ask, aborted=True)
        return view.end(ask, aborted=False)


class StreamView:
    """What a client of a stream got. Mutable; the servers here send one data line an event."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self._done = False
        self._error = False

    def take(self, event: bytes) -> None:
        data = event.removeprefix(b"data: ")
        if data == b"[DONE]":
            self._done = True
            return
        self.events.append(msgspec.json.decode(data))
        self._error = self._error or "error" in self.events[-1]

    def end(self, ask: Ask, *, aborted: bool) -> End:
        if self._error:
            return End.CUT if aborted else End.INCOMPLETE
        if aborted:
            return End.SILENT_ABORT
        if not self._done:
            return End.INCOMPLETE
        return End.COMPLETE if ask.answered_by(self.events) else End.WRONG_TEXT


OWN_ERROR = frozenset(("message", "type", "param", "code"))
BACKEND_ERROR = frozenset(("message", "type"))
"""What engines put into it differs; an object it must be."""


def end_of_error(
    status: int, body: bytes, asked: int, members: frozenset[str] = BACKEND_ERROR
) -> End | int:
    """An error must be OpenAI's object, with these members at least."""
    try:
        complete = members <= set(msgspec.json.decode(body)["error"])
    except (msgspec.DecodeError, KeyError, TypeError):
        complete = False
    if not complete:
        return End.NO_ERROR_OBJECT
    return End.ASKED_STATUS if status == asked else status


@asynccontextmanager
async def connected(url: str, dialect: Dialect) -> AsyncIterator[Load]:
    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        yield Load(url, dialect, http)
