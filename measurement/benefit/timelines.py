"""A ledger's row as a timeline, so that every named definition can be taken of it.

Seconds after the proxy had the request: what a client adds to that (its network, its connection) is
not in it; what the proxy spends, a compressor's time too, is.
"""

from __future__ import annotations

from prefold.measurement.definitions.timeline import CachedDetails, Chunk, Kind, Timeline, Usage
from prefold.measurement.ledger.reader import LedgerRow

OK = "ok"
CLIENT_GONE = "client_gone"
KINDS = frozenset(Kind)


def timeline_of(row: LedgerRow) -> Timeline:
    """Its `error` is the outcome, where that is none of an answer."""
    chunks = [Chunk(at, kind) for at, kind in zip(row.tokens, _kinds(row), strict=True)]
    chunks += [Chunk(at, Kind(kind)) for at, kind in row.other_events if kind in KINDS]
    chunks.sort(key=lambda chunk: chunk.t)
    return Timeline(
        sent=0.0,
        chunks=tuple(chunks),
        usage=Usage(
            prompt_tokens=row.prompt_tokens,
            completion_tokens=row.output_tokens,
            prompt_tokens_details=CachedDetails(row.reported_tokens),
        ),
        end=row.end,
        error=None if row.outcome == OK else row.outcome,
    )


def _kinds(row: LedgerRow) -> list[Kind]:
    """One for each token event."""
    kinds = [Kind.CONTENT] * len(row.tokens)
    for start, kind in row.token_kinds:
        named = Kind(kind)
        kinds[start:] = [named] * (len(kinds) - start)
    return kinds


def gaps_known(row: LedgerRow) -> bool:
    """Whether all of its token events are there: a ledger may keep only the first and the last one,
    and then no other event either."""
    return len(row.tokens) != 2 or bool(row.other_events)
