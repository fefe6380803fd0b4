"""From RequestRecords to what is stored of them. The way back is `reader`.

A row is a JSON list: attributes of the record as they are, then what is made of its events and
keys. Rows that are written together are one text, a pack: to encode and insert so costs less than
half of what a row of its own for each request does.

No text of a prompt or an answer: figures, moments, digests, names of the configuration, of backends
and of enums, and the request's id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np

from prefold.measurement.ledger.digests import Digests
from prefold.measurement.record import RequestRecord

US = 1e6

ATTRIBUTES = (
    "request_id", "endpoint", "model", "backend", "tenant", "arm", "mode", "reason", "outcome",
    "error", "status", "attempts", "streamed", "compression", "compression_reason",
    "encoded_tokens", "removed_tokens", "prompt_tokens", "available_tokens", "expected_tokens",
    "reported_tokens", "output_tokens", "prefix_tokens",
    "received", "parsed", "encoded", "matched", "compressed", "chosen", "sent", "headers",
    "first_event", "end", "predicted_token", "fallback_token",
    "compressor_waited_s", "compressor_spent_s", "slice_start", "round_start",
)  # fmt: skip
"""Of a record; texts that are not known are "" there."""
EVENTS = ("first_token", "last_token", "token_gaps", "token_kinds", "other_events")
ORDER = (*ATTRIBUTES, *EVENTS, "blocks", "last_block", "conversation")
"""What a row's values are. Never change it: add to its end, and what older rows lack is unknown.
`blocks`, those before the last one, is a place in its pack's list of them: prompts share most."""

_attributes = attrgetter(*ATTRIBUTES)
_received = attrgetter("received")
_json = msgspec.json.Encoder().encode
_NO_EVENTS = (None,) * len(EVENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRules:
    """`token_times`: whether each token event's time is kept."""

    digests: Digests
    token_times: bool


class Pack(NamedTuple):
    """Rows that are written together. `ended`, the latest one's, and `received`, the earliest
    one's, are microseconds since 1970; `clock` takes the moments of the rows to seconds since 1970.
    `labels`, of each backend, `blocks`, different ones, and `rows` are JSON."""

    ended: int
    requests: int
    received: int
    clock: float
    labels: str | None
    blocks: str | None
    rows: str


def pack_of(
    records: Sequence[RequestRecord],
    *,
    clock: float,
    labels: str | None,
    rules: RowRules,
) -> Pack:
    """One at least. `clock` as in Pack. Raises OverflowError and UnicodeEncodeError for a
    record that no row can hold."""
    blocks: dict[str, int] = {}
    rows = [_row_of(record, rules, blocks) for record in records]
    return Pack(
        ended=round((max(map(_end, records)) + clock) * US),
        requests=len(records),
        received=round((min(map(_received, records)) + clock) * US),
        clock=clock,
        labels=labels,
        blocks=_json(list(blocks)).decode() if blocks else None,
        rows=_json(rows).decode(),
    )


def _end(record: RequestRecord) -> float:
    return record.received if record.end is None else record.end


def _row_of(record: RequestRecord, rules: RowRules, blocks: dict[str, int]) -> tuple[Any, ...]:
    """`blocks`: the places of those that are known, to which others are added."""
    digests, last, conversation = rules.digests, record.last_block, record.conversation
    before = digests.of_blocks(record.blocks) if record.blocks else ""
    return (
        *_attributes(record),
        *(_events_of(record, rules) if record.tokens or record.other_events else _NO_EVENTS),
        blocks.setdefault(before, len(blocks)) if before else None,
        None if last is None else digests.of_block(last),
        None if conversation is None else digests.of_conversation(conversation),
    )


def _events_of(record: RequestRecord, rules: RowRules) -> tuple[Any, ...]:
    start, tokens = record.received, record.tokens
    first, last = (tokens[0], tokens[-1]) if tokens else (None, None)
    if not rules.token_times:
        return first, last, None, None, None
    others = [(round((at - start) * US), kind) for at, kind in record.other_events]
    return first, last, gaps_us(tokens, start), kinds_of(record), others or None


def gaps_us(moments: Sequence[float], start: float) -> list[int] | None:
    """Microseconds from each to the next; their sum does not drift."""
    if len(moments) < 2:
        return None
    whole = np.floor((np.array(moments) - start) * US + 0.5).astype(np.int64)
    gaps: list[int] = np.diff(whole).clip(0).tolist()
    return gaps


def kinds_of(record: RequestRecord) -> Sequence[tuple[int, str]] | None:
    """None: all of them are content."""
    kinds = record.token_kinds
    if not kinds or (len(kinds) == 1 and kinds[0][1] == "content"):
        return None
    return kinds
