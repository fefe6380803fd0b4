"""A ledger's rows as timelines, from which every tool's definition can be computed.

They are the proxy's view: sent is when it had the request, and a chunk's time is when it read it.
"""

from __future__ import annotations

from prefold.measurement.definitions.timeline import Chunk, Kind, Timeline, Usage, chunks_of
from prefold.measurement.ledger.reader import LedgerRow


def timeline_of(row: LedgerRow) -> Timeline:
    """Seconds since 1970. An answer that was not streamed is one chunk of content at its end; one
    of which only the first and the last token's times were kept has no gaps that can be told, so it
    has those two chunks."""
    failed = None if row.outcome == "ok" else row.error or row.outcome
    if row.streamed:
        chunks = chunks_of(row.tokens, row.token_kinds, row.other_events, row.received)
    else:
        chunks = () if failed else (Chunk(row.received + row.end, Kind.CONTENT),)
    return Timeline(
        sent=row.received,
        chunks=chunks,
        usage=Usage(row.prompt_tokens, row.output_tokens, row.reported_tokens),
        end=row.received + row.end,
        error=failed,
    )
