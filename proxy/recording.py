"""What a RequestRecord says of a request that did not come to its end."""

from __future__ import annotations

import asyncio

from prefold.measurement.record import RequestOutcome, RequestRecord
from prefold.proxy.errors import ApiError, UpstreamFailed, UpstreamTimedOut
from prefold.proxy.http.answer import ClientGone

GONE = (ClientGone, asyncio.CancelledError)
"""The handler of a client that left is cancelled, and those that outlast the drain."""


def note_error(record: RequestRecord, error: BaseException, *, cut: bool) -> None:
    """`cut`: it was ended because the process ends."""
    if isinstance(error, ApiError):
        failed = isinstance(error, UpstreamFailed | UpstreamTimedOut)
        record.outcome = RequestOutcome.UPSTREAM_FAILED if failed else RequestOutcome.REJECTED
        record.status = error.status
        record.error = error.code or error.kind
    elif isinstance(error, GONE):
        record.outcome = RequestOutcome.CUT_OFF if cut else RequestOutcome.CLIENT_GONE
        record.status = 503 if cut else 499
