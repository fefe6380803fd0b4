"""From a RequestRecord to what is stored of it. The way back is `reader`.

No text of a prompt or an answer: figures, moments, digests, names of the configuration, of backends
and of enums, and the request's id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np

from prefold.measurement.ledger.digests import Digests
from prefold.measurement.record import RequestRecord

US = 1e6
Value = int | str | bytes | None
Kind = tuple[Value, ...]
"""In the order of the table `kinds`, without its number."""
Row = tuple[Value, ...]
"""In the order of the table `request_rows`."""

_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRules:
    """`labels`: of a backend, as JSON. `token_times`: whether each token event's time is kept."""

    digests: Digests
    labels: Callable[[str], str | None]
    token_times: bool


def id_of(record: RequestRecord, offset: float, last_id: int) -> int:
    """Microseconds since 1970 at the request's end, or the next after `last_id`: rows are in order
    of their ends. `offset` takes the record's clock to seconds since 1970."""
    end = record.received if record.end is None else record.end
    return max(last_id + 1, round((end + offset) * US))


def kind_of(record: RequestRecord, labels: Callable[[str], str | None]) -> Kind:
    backend = record.backend
    return (
        record.endpoint,
        record.model or None,
        backend or None,
        labels(backend) if backend else None,
        record.tenant or None,
        record.arm,
        record.mode or None,
        record.reason or None,
        record.outcome,
        record.error or None,
        record.status,
        record.attempts,
        int(record.streamed),
        record.compression or None,
        record.compression_reason or None,
    )


def row_of(record: RequestRecord, offset: float, row_id: int, kind: int, rules: RowRules) -> Row:
    """`kind` is the number of its kind."""
    start = record.received
    tokens, digests = record.tokens, rules.digests
    timed = rules.token_times and (tokens or record.other_events)
    conversation = record.conversation
    return (
        row_id,
        round((start + offset) * US),
        record.request_id or None,
        kind,
        record.encoded_tokens,
        record.removed_tokens,
        record.prompt_tokens,
        record.available_tokens,
        record.expected_tokens,
        record.reported_tokens,
        record.output_tokens,
        record.prefix_tokens,
        moments_of(record),
        gaps_us(tokens, start) if timed else None,
        kinds_of(record) if timed else None,
        others_of(record) if timed else None,
        digests.of_blocks(record.blocks) if record.blocks else None,
        None if conversation is None else digests.of_conversation(conversation),
        None if record.slice_start is None else round(record.slice_start * US),
        None if record.round_start is None else round(record.round_start * US),
    )


def moments_of(record: RequestRecord) -> str:
    """A JSON list of microseconds after the request came, null for what was not reached, and two
    spans of time; in the order in which the view takes it apart."""
    start, tokens = record.received, record.tokens
    moments = (
        record.parsed,
        record.encoded,
        record.matched,
        record.compressed,
        record.chosen,
        record.sent,
        record.headers,
        record.first_event,
        tokens[0] if tokens else None,
        tokens[-1] if tokens else None,
        start if record.end is None else record.end,
        record.predicted_token,
        record.fallback_token,
    )
    whole = [None if at is None else int((at - start) * US + 0.5) for at in moments]
    spans = (record.compressor_waited_s, record.compressor_spent_s)
    whole += [None if seconds is None else int(seconds * US + 0.5) for seconds in spans]
    return _json(whole).decode()


def gaps_us(moments: list[float], start: float) -> bytes | None:
    """Microseconds from each to the next, 32 bits little-endian each; their sum does not drift."""
    if len(moments) < 2:
        return None
    whole = np.floor((np.array(moments) - start) * US + 0.5)
    return np.diff(whole).clip(0, 0xFFFFFFFF).astype("<u4").tobytes()


def kinds_of(record: RequestRecord) -> str | None:
    """None: all of them are content."""
    kinds = record.token_kinds
    if not kinds or (len(kinds) == 1 and kinds[0][1] == "content"):
        return None
    return _json(kinds).decode()


def others_of(record: RequestRecord) -> str | None:
    start = record.received
    if not record.other_events:
        return None
    made = [(int((at - start) * US + 0.5), kind) for at, kind in record.other_events]
    return _json(made).decode()
