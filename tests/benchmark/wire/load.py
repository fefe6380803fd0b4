"""The load generator: `python -m tests.benchmark.wire.load`, a process that does one job a line.

A job comes as a line of JSON on standard input. Its bodies are made first, then "ready" is said and
any line awaited: so that others can read their CPU clocks. "done" follows the last answer; only
then all answers are checked, and the figures written.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Any, cast
from urllib.parse import urlsplit

import uvloop

from tests.benchmark.wire.answers import Answer, WrongAnswer, check
from tests.benchmark.wire.bodies import bodies, request
from tests.benchmark.wire.job import Job, Outcome
from tests.benchmark.wire.pacer import Pacer
from tests.benchmark.wire.scene import CONTENT

GIVE_UP_S = 30.0


class Failed(Exception):
    """A connection was refused or lost, or an answer did not come."""


class Connection(asyncio.Protocol):
    """A kept-alive connection with at most one request on it."""

    def __init__(self, lost: Callable[[str], None]) -> None:
        self._lost = lost
        self._answer: Answer | None = None
        self._then: Callable[[Connection, Answer], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        raw: socket.socket = transport.get_extra_info("socket")
        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    def ask(self, raw: bytes, then: Callable[[Connection, Answer], None]) -> None:
        self._answer, self._then = Answer(CONTENT, bytearray()), then
        self._transport.write(raw)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        if self._answer is None or self._then is None:
            self._lost("bytes that belong to no answer")
        elif self._complete(self._answer, data, now):
            answer, self._answer = self._answer, None
            self._then(self, answer)

    def _complete(self, answer: Answer, data: bytes, now: float) -> bool:
        try:
            return answer.take(data, now)
        except WrongAnswer as error:
            self._lost(str(error))
            return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None:
            got = bytes(self._answer.raw[:60])
            self._lost(f"the connection was lost in an answer that began {got!r}")

    def close(self) -> None:
        self._answer = None
        self._transport.close()


class Run:
    """One job, from its first request to its last answer."""

    def __init__(self, job: Job, raws: list[bytes]) -> None:
        self._job = job
        self._raws = deque(raws)
        self._left = len(raws)
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pacer = Pacer()
        self._idle: list[Connection] = []
        self._all: list[Connection] = []
        self.answers: list[Answer] = []
        self.first_ms: list[float] = []

    async def play(self) -> float:
        """Seconds that it took. Raises Failed."""
        started = time.perf_counter()
        try:
            async with asyncio.timeout(GIVE_UP_S + self._expected_s()):
                await (self._open_loop() if self._job.rate else self._closed_loop())
                await self._done
        except (OSError, TimeoutError) as error:
            raise Failed(f"{type(error).__name__}: {len(self.answers)} answers") from error
        finally:
            self._pacer.close()
            for connection in self._all:
                connection.close()
        return time.perf_counter() - started

    @property
    def connections(self) -> int:
        return len(self._all)

    def _expected_s(self) -> float:
        return self._job.requests / self._job.rate if self._job.rate else 60.0

    async def _closed_loop(self) -> None:
        ready = [await self._connect() for _ in range(self._job.connections)]
        start, apart = time.monotonic_ns(), self._job.stagger_ms * 1e6 / len(ready)
        for number, connection in enumerate(ready):
            self._pacer.call_at(start + int(number * apart), partial(self._send_next, connection))

    async def _open_loop(self) -> None:
        start, rng = time.perf_counter(), random.Random(self._job.seed)
        for number in range(self._job.requests):
            due = start + (number + rng.random() / 2) / self._job.rate
            await asyncio.sleep(max(due - time.perf_counter(), 0.0))
            self._send(self._idle.pop() if self._idle else await self._connect())

    async def _connect(self) -> Connection:
        parts = urlsplit(self._job.url)
        assert parts.hostname is not None
        assert parts.port is not None
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(self._fail), parts.hostname, parts.port
        )
        self._all.append(connection)
        return connection

    def _send_next(self, connection: Connection) -> None:
        if self._raws:
            self._send(connection)

    def _send(self, connection: Connection) -> None:
        raw, sent = self._raws.popleft(), time.perf_counter()

        def ended(connection: Connection, answer: Answer) -> None:
            assert answer.first_at is not None
            self.first_ms.append((answer.first_at - sent) * 1000)
            self.answers.append(answer)
            self._left -= 1
            if not self._left and not self._done.done():
                self._done.set_result(None)
            if self._job.rate:
                self._idle.append(connection)
            else:
                self._send_next(connection)

        connection.ask(raw, ended)

    def _fail(self, reason: str) -> None:
        if not self._done.done():
            self._done.set_exception(Failed(reason))


def wrong(job: Job, answers: list[Answer]) -> str:
    try:
        for answer in answers:
            check(answer.raw, chunks=job.chunks, needs=job.needs.encode())
    except WrongAnswer as error:
        return str(error)
    return ""


def do(job: Job) -> Outcome:
    """Raises Failed."""
    made = bodies(size=job.body_bytes, shared=job.shared, stream=job.chunks > 0, seed=job.seed)
    raws = [request(body) for body in islice(made, job.requests)]
    say("ready")
    sys.stdin.readline()

    async def played() -> tuple[Run, float]:
        run = Run(job, raws)
        return run, await run.play()

    cpu_before = time.process_time_ns()
    run, wall_s = uvloop.run(played())
    cpu_us = (time.process_time_ns() - cpu_before) / 1000
    say("done")
    return Outcome(
        requests=job.requests,
        wall_s=wall_s,
        first_ms=run.first_ms,
        cpu_us=cpu_us,
        connections=run.connections,
        wrong=wrong(job, run.answers),
    )


def say(value: Any) -> None:
    print(json.dumps(value), flush=True)


def main() -> None:
    gc.freeze()
    gc.disable()  # a pause would count as a peer's
    for line in sys.stdin:
        try:
            say(asdict(do(Job(**json.loads(line)))))
        except Failed as error:
            say({"failed": str(error)})
        gc.collect()


if __name__ == "__main__":
    main()
