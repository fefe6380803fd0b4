"""The path of a request, top to bottom. Read this file first.

Deciding is done elsewhere, by pure functions; here is the order of things, and who ends what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from prefold.backends.errors import UpstreamDisconnected
from prefold.measurement.record import RequestOutcome, RequestRecord
from prefold.proxy.answer import answer, note_end, told_of
from prefold.proxy.attempts import Attempts
from prefold.proxy.call import Call
from prefold.proxy.errors import UpstreamTimedOut
from prefold.proxy.exchange import Exchange
from prefold.proxy.feedback import Feedback
from prefold.proxy.heartbeat import beating
from prefold.proxy.http.answer import Answer
from prefold.proxy.http.request import Request
from prefold.proxy.ledger_notes import LedgerNotes
from prefold.proxy.openai import Body
from prefold.proxy.pins import Pins
from prefold.proxy.preparing import Preparing
from prefold.proxy.recording import note_error

if TYPE_CHECKING:
    from prefold.proxy.tracing import Tracing  # not loaded where nobody wants it

Prepare = Callable[[Request, RequestRecord], Awaitable[Call]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """Seconds; `total_s` 0: a request may take as long as it takes; `heartbeat_s` 0: silence while
    a stream has not begun."""

    decision_header: bool
    write_s: float
    total_s: float
    heartbeat_s: float


class Pipeline:
    """Every request that a backend is to answer. What differs is how it is prepared: whether its
    prompt decides where it goes, or the load, or the state that it asks for."""

    def __init__(
        self,
        *,
        preparing: Preparing,
        attempts: Attempts,
        pins: Pins,
        options: PipelineOptions,
        observe: Callable[[RequestRecord], None],
        clock: Callable[[], float],
        feedback: Feedback,
        notes: LedgerNotes | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._preparing = preparing
        self._attempts = attempts
        self._pins = pins
        self._options = options
        self._observe = observe
        self._clock = clock
        self._feedback = feedback
        self._notes = notes
        self._tracing = tracing

    async def by_prefix(self, request: Request, kind: type[Body]) -> None:
        """Raises ApiError while nothing has been sent, ClientGone once nobody listens; all do."""
        await self._run(request, kind.path, partial(self._preparing.by_prefix, kind=kind))

    async def by_load(self, request: Request, endpoint: str) -> None:
        await self._run(request, endpoint, self._preparing.by_load)

    async def by_id(self, request: Request, endpoint: str) -> None:
        await self._run(request, endpoint, self._preparing.by_id)

    async def stateful(self, request: Request, endpoint: str) -> None:
        await self._run(request, endpoint, self._preparing.stateful)

    async def _run(self, request: Request, endpoint: str, prepare: Prepare) -> None:
        """The record is handed to `observe` exactly once, on every way out."""
        record = RequestRecord(
            endpoint=endpoint,
            received=self._clock(),
            request_id=request.request_id,
            tenant=request.tenant,
        )
        tracing = self._tracing
        trace = None if tracing is None else tracing.begin(request, record)
        carry = self._carry if not self._options.total_s else self._carry_in_time
        try:
            await carry(request, prepare, record)
        except BaseException as error:
            note_error(record, error, cut=request.cut)
            raise
        finally:
            record.end = self._clock()
            self._observe(record)
            if tracing is not None and trace is not None:
                tracing.end(trace, record)

    async def _carry_in_time(
        self, request: Request, prepare: Prepare, record: RequestRecord
    ) -> None:
        try:
            async with asyncio.timeout(self._options.total_s):
                await self._carry(request, prepare, record)
        except TimeoutError as error:
            raise UpstreamTimedOut("The request took longer than it may.") from error

    async def _carry(self, request: Request, prepare: Prepare, record: RequestRecord) -> None:
        call = await prepare(request, record)
        exchange = await self._open(call, request.answer, record)
        try:
            await self._answer(call, request.answer, exchange, record)
        finally:
            exchange.close()
            if (
                self._notes is not None
                and call.prompt is not None
                and call.prompt.whole is not None
            ):
                self._notes.prompt(call.prompt, record)

    async def _open(self, call: Call, out: Answer, record: RequestRecord) -> Exchange:
        opening = self._attempts.open(call, record)
        if not (self._options.heartbeat_s and record.streamed):
            return await opening
        every_s = self._options.heartbeat_s
        return await beating(out, opening, every_s, call.protocol, told_of(call))

    async def _answer(
        self, call: Call, out: Answer, exchange: Exchange, record: RequestRecord
    ) -> None:
        self._learn(call, exchange)  # a client may ask for a response while it is being made
        failure = await answer(
            out,
            exchange,
            record,
            decision_header=self._options.decision_header,
            told=told_of(call),
            write_s=self._options.write_s,
        )
        note_end(exchange, failure, record, several=call.several)
        if isinstance(failure, UpstreamDisconnected):
            self._attempts.broke(call, exchange.backend)
        elif record.outcome is RequestOutcome.OK:
            self._attempts.answered(call)
            if call.prompt is not None and not call.several:
                self._feedback.learn(exchange, record)

    def _learn(self, call: Call, exchange: Exchange) -> None:
        meter = exchange.meter
        made = exchange.whole.response_id if meter is None else meter.response_id
        if made is not None:
            self._pins.learn(call.tenant, made, exchange.backend.name)
