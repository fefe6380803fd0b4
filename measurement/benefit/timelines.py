"""A ledger's row as a timeline, so that every named definition can be taken of it.

Seconds after the proxy had the request: what a client adds to that (its network, its connection) is
not in it; what the proxy spends, a compressor's time too, is.
"""

from __future__ import annotations

from prefold.measurement.definitions.timeline import CachedDetails, Timeline, Usage, chunks_of
from prefold.measurement.ledger.reader import LedgerRow

OK = "ok"
CLIENT_GONE = "client_gone"


def timeline_of(row: LedgerRow) -> Timeline:
    """Its `error` is the outcome, where that is none of an answer."""
    return Timeline(
        sent=0.0,
        chunks=chunks_of(row.tokens, row.token_kinds, row.other_events),
        usage=Usage(
            prompt_tokens=row.prompt_tokens,
            completion_tokens=row.output_tokens,
            prompt_tokens_details=CachedDetails(row.reported_tokens),
        ),
        end=row.end,
        error=None if row.outcome == OK else row.outcome,
    )


def gaps_known(row: LedgerRow) -> bool:
    """Whether all of its token events are there: a ledger may keep only the first and the last one,
    and then no other event either."""
    return len(row.tokens) != 2 or bool(row.other_events)
