"""From the tables of version 4, with a row for each request, to those of version 5, with packs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from prefold.measurement.ledger.digests import HEX
from prefold.measurement.ledger.row import ORDER, US, Pack

PACK_ROWS = 256
MOMENTS = (
    "parsed", "encoded", "matched", "compressed", "chosen", "sent", "headers", "first_event",
    "first_token", "last_token", "end", "predicted_token", "fallback_token",
)  # fmt: skip
"""In the list of `moments`; two spans of time follow."""
KIND = (
    "endpoint", "model", "backend", "tenant", "arm", "mode", "reason", "outcome", "error",
    "status", "attempts", "streamed", "compression", "compression_reason",
)  # fmt: skip
COUNTS = (
    "original_tokens", "removed_tokens", "prompt_tokens", "available_tokens", "expected_tokens",
    "reported_tokens", "output_tokens", "prefix_tokens",
)  # fmt: skip
QUERY = (
    f"SELECT id, received, labels, request_id, {', '.join((*KIND, *COUNTS))}, moments, token_gaps,"
    " token_kinds, other_events, blocks, conversation, slice_start, round_start"
    " FROM request_rows JOIN kinds USING (kind) ORDER BY id"
)


def packs_of(connection: sqlite3.Connection) -> Iterator[Pack]:
    """Of all rows there are, in their order; a pack is of one set of labels."""
    cursor = connection.execute(QUERY)
    names = [column[0] for column in cursor.description]
    held: list[dict[str, Any]] = []
    labels: dict[str, str | None] = {}
    for values in cursor:
        row = dict(zip(names, values, strict=True))
        other = labels.get(row["backend"], row["labels"]) != row["labels"]
        if held and (other or len(held) == PACK_ROWS):
            yield _pack(held, labels)
            held, labels = [], {}
        held.append(row)
        if row["backend"] is not None:
            labels[row["backend"]] = row["labels"]
    if held:
        yield _pack(held, labels)


def _pack(rows: list[dict[str, Any]], labels: dict[str, str | None]) -> Pack:
    base = min(row["received"] for row in rows)
    known = {name: msgspec.Raw(text.encode()) for name, text in labels.items() if text is not None}
    blocks: dict[str, int] = {}
    packed = [_row(row, base, blocks) for row in rows]
    return Pack(
        ended=rows[-1]["id"],
        requests=len(rows),
        received=base,
        clock=base / US,
        labels=msgspec.json.encode(known).decode() if known else None,
        blocks=msgspec.json.encode(list(blocks)).decode() if blocks else None,
        rows=msgspec.json.encode(packed).decode(),
    )


def _row(row: dict[str, Any], base: int, blocks: dict[str, int]) -> list[Any]:
    start = row["received"] - base
    *moments, waited, spent = [*msgspec.json.decode(row["moments"]), None, None][: len(MOMENTS) + 2]
    made = {name: row[name] for name in (*KIND, *COUNTS, "request_id")}
    made["encoded_tokens"] = made.pop("original_tokens")
    made["received"] = start / US
    for name, us in zip(MOMENTS, moments, strict=True):
        made[name] = None if us is None else (start + us) / US
    for name, span in (("compressor_waited_s", waited), ("compressor_spent_s", spent)):
        made[name] = None if span is None else span / US
    for name in ("slice_start", "round_start"):
        made[name] = None if row[name] is None else row[name] / US
    gaps = row["token_gaps"]
    made["token_gaps"] = None if gaps is None else np.frombuffer(gaps, dtype="<u4").tolist()
    for name in ("token_kinds", "other_events"):
        made[name] = None if row[name] is None else msgspec.json.decode(row[name])
    made["blocks"] = made["last_block"] = None
    if digests := (row["blocks"] or b"").hex():
        before = digests[:-HEX]
        made["blocks"] = blocks.setdefault(before, len(blocks)) if before else None
        made["last_block"] = digests[-HEX:]
    made["conversation"] = row["conversation"] and row["conversation"].hex()
    return [made.get(name) for name in ORDER]
