"""The way back: the answer goes to the client, and what it told goes to the books."""

from __future__ import annotations

from collections.abc import Mapping

from multidict import CIMultiDict

from prefold.backends.errors import BackendError
from prefold.measurement.record import RequestOutcome, RequestRecord
from prefold.proxy.call import Call
from prefold.proxy.compression.switch import HEADER as COMPRESSION
from prefold.proxy.documents.documents import HEADER as DOCUMENTS
from prefold.proxy.exchange import Exchange
from prefold.proxy.headers import downstream_headers
from prefold.proxy.http.answer import Answer
from prefold.proxy.relay import send_raw, send_whole


def told_of(call: Call) -> dict[str, str]:
    """Headers that say what was done to its prompt."""
    told = {DOCUMENTS: call.documents} if call.documents else {}
    if call.compression:
        told[COMPRESSION] = call.compression
    return told


async def answer(
    out: Answer,
    exchange: Exchange,
    record: RequestRecord,
    *,
    decision_header: bool,
    told: Mapping[str, str],
    write_s: float,
) -> BackendError | None:
    """To its end; the failure, if that was no proper one. Raises ClientGone. `told`: further
    headers."""
    record.status = exchange.status
    if exchange.meter is not None:
        record.tokens = exchange.meter.token_times
        record.token_kinds = exchange.meter.token_kinds
        record.other_events = exchange.meter.other_events
    whole = exchange.rest is None and exchange.events is None
    if not out.begun:
        headers = _headers(exchange, record, decision_header)
        headers.update(told)
        out.begin(exchange.status, headers, len(exchange.first) if whole else None)
    failure = None
    if exchange.events is not None:
        failure = await exchange.events.relay(out, exchange.protocol, write_s)
    elif exchange.rest is not None:
        failure = await send_raw(out, exchange.first, exchange.rest, write_s)
    else:
        await send_whole(out, exchange.first, write_s)
    if failure is not None:
        exchange.failed(failure)
    return failure


def _headers(exchange: Exchange, record: RequestRecord, decision_header: bool) -> CIMultiDict[str]:
    headers = downstream_headers(exchange.upstream.headers)
    if exchange.rewritten:
        headers["Content-Type"] = "application/json"
    if decision_header and record.expected_tokens is not None:
        headers["X-Prefold-Decision"] = (
            f"backend={record.backend}; reason={record.reason}; mode={record.mode};"
            f" expected_cached_tokens={record.expected_tokens}; attempts={record.attempts}"
        )
    return headers


def note_end(
    exchange: Exchange, failure: BackendError | None, record: RequestRecord, *, several: bool
) -> None:
    """How it ended, and what the engine told of the prompt: for the record and the learned rate. Of
    several sequences in one request, what was cached and what was computed stays unknown."""
    answered, report = exchange.report()
    late = exchange.placed_late
    if late is not None:
        record.encoded_tokens = late.prefix.length + (record.removed_tokens or 0)
        if exchange.backend.prediction.trusted:
            record.expected_tokens = late.cached_tokens
            record.available_tokens = max(record.available_tokens or 0, late.cached_tokens)
    if failure is not None:
        record.outcome = RequestOutcome.UPSTREAM_FAILED
        record.error = type(failure).__name__
    else:
        record.outcome = RequestOutcome.OK if answered else RequestOutcome.UPSTREAM_ERROR
    record.prompt_tokens = report.prompt_tokens
    record.output_tokens = report.completion_tokens
    if several:
        return
    record.reported_tokens = report.cached_tokens
    seconds = report.prefill_s
    if seconds is None and exchange.first_in_line and record.tokens and record.sent is not None:
        seconds = record.tokens[0] - record.sent
    if report.prompt_tokens is None or report.cached_tokens is None or seconds is None:
        return
    exchange.backend.rate.observe(report.prompt_tokens - report.cached_tokens, seconds)
