"""One RequestRecord for each request, whatever ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prefold.measurement.record import RequestOutcome, RequestRecord
from prefold.proxy.errors import ApiError, UpstreamFailed, UpstreamTimedOut
from prefold.proxy.http.answer import ClientGone
from prefold.proxy.http.request import Request

log = logging.getLogger(__name__)


@contextmanager
def recorded(
    endpoint: str,
    request: Request,
    observe: Callable[[RequestRecord], None],
    clock: Callable[[], float],
) -> Iterator[RequestRecord]:
    """The record to fill; it is handed to `observe` exactly once, on every way out."""
    record = RequestRecord(endpoint=endpoint, received=clock(), request_id=request.request_id)
    try:
        yield record
    except ApiError as error:
        failed = isinstance(error, UpstreamFailed | UpstreamTimedOut)
        record.outcome = RequestOutcome.UPSTREAM_FAILED if failed else RequestOutcome.REJECTED
        record.status = error.status
        raise
    except (ClientGone, asyncio.CancelledError):
        # The handler of a client that left is cancelled, and those that outlast the drain.
        if request.cut:
            record.outcome, record.status = RequestOutcome.CUT_OFF, 503
        else:
            record.outcome, record.status = RequestOutcome.CLIENT_GONE, 499
        raise
    finally:
        record.end = clock()
        try:
            observe(record)
        except Exception as error:  # noqa: BLE001 - a fault in the books fails no request
            log.error("a request could not be recorded: %s", type(error).__name__)
