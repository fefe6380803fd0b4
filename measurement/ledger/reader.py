"""Rows of a ledger as typed values, for reports and exports. Reads while a proxy writes.

Knows nothing of how a row came about: that is `row`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import numpy as np

from prefold.measurement.ledger.digests import DIGEST_BYTES
from prefold.measurement.ledger.samples import EngineSample
from prefold.measurement.ledger.schema import VERSION, LedgerError, columns, version_of

PAGE_ROWS = 512
"""Read at once: a reader that pauses must not hold the file's log."""
COLUMNS = (
    "id", "received", "request_id", "endpoint", "model", "backend", "labels", "tenant", "arm",
    "mode", "reason", "outcome", "error", "status", "attempts", "streamed",
    "compression", "compression_reason", "original_tokens",
    "sent_tokens", "removed_tokens", "prompt_tokens", "available_tokens", "expected_tokens",
    "reported_tokens", "output_tokens", "prefix_tokens", "parsed_us", "encoded_us",
    "matched_us", "compressed_us", "leased_us", "sent_us", "headers_us", "first_event_us",
    "first_token_us", "last_token_us", "end_us", "predicted_us", "fallback_us",
    "compressor_waited_us", "compressor_spent_us",
    "token_gaps", "token_kinds", "other_events", "blocks", "conversation",
    "slice_start", "round_start",
)  # fmt: skip
"""Of the view `requests`."""
GROUPS = (
    "arm", "model", "backend", "tenant", "mode", "reason", "outcome", "endpoint", "compression",
    "compression_reason",
)  # fmt: skip
"""What rows may be grouped by, besides `label:NAME`."""


class LedgerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `received` is seconds since 1970, moments are seconds after it. None: unknown,
    not reached, or not kept. docs/ledger.md has each column."""

    id: int
    received: float
    request_id: str | None
    endpoint: str
    model: str | None
    backend: str | None
    labels: dict[str, str]
    tenant: str | None
    arm: str | None
    mode: str | None
    reason: str | None
    outcome: str
    error: str | None
    status: int
    attempts: int
    streamed: bool
    compression: str | None
    """The form that was sent, and why; None: compression did not look at it."""
    compression_reason: str | None
    original_tokens: int | None
    sent_tokens: int | None
    removed_tokens: int | None
    prompt_tokens: int | None
    available_tokens: int | None
    expected_tokens: int | None
    reported_tokens: int | None
    output_tokens: int | None
    prefix_tokens: int | None
    parsed: float | None
    encoded: float | None
    matched: float | None
    compressed: float | None
    leased: float | None
    sent: float | None
    headers: float | None
    first_event: float | None
    first_token: float | None
    last_token: float | None
    end: float
    predicted: float | None
    """When the gate of compression expected the first token, of the form that it chose."""
    fallback: float | None
    """The same of the prompt as it came, or as it was in earlier turns."""
    compressor_waited: float | None
    """Seconds, as the next."""
    compressor_spent: float | None
    tokens: list[float]
    """Moments of the token events; only the first and the last where the others were not kept."""
    token_kinds: list[tuple[int, str]]
    """From which of them on they are of which kind; empty: all are content."""
    other_events: list[tuple[float, str]]
    blocks: list[bytes]
    """One digest for each full block of the prompt, of all up to its end."""
    conversation: bytes | None
    slice_start: float | None
    """Of an experiment by time, when its slice began, in seconds since 1970; one without an arm
    came during the wash-out."""
    round_start: float | None

    def group(self, by: str) -> str | None:
        """Its value of one of GROUPS or of `label:NAME`. Raises ValueError for others."""
        if by.startswith("label:"):
            return self.labels.get(by.removeprefix("label:"))
        if by not in GROUPS:
            raise ValueError(f"{by!r}: one of {', '.join(GROUPS)} or label:NAME")
        value: str | None = getattr(self, by)
        return value


class LedgerReader:
    """Of one file, opened for reading only. Every method raises LedgerError."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Use `open_ledger`."""
        self._connection = connection
        self.version = version_of(connection)
        there = set(columns(connection))
        self._select = ", ".join(name if name in there else "NULL" for name in COLUMNS)

    def rows(
        self, *, since: float | None = None, until: float | None = None
    ) -> Iterator[LedgerRow]:
        """Of requests received from `since` on and before `until`, seconds since 1970, in the order
        of their ends."""
        # An id is never earlier than the request's end, nor that than its beginning.
        last = -1 if since is None else round(since * 1e6) - 1
        query = (
            f"SELECT {self._select} FROM requests"
            " WHERE id > ? AND received >= ? AND received < ? ORDER BY id LIMIT ?"
        )
        first, end = max(last + 1, 0), 2**63 - 1 if until is None else round(until * 1e6)
        while page := self._fetch(query, (last, first, end, PAGE_ROWS)):
            yield from map(_read, page)
            last = page[-1][0]

    def rows_by_arrival(self, *, since: float | None = None) -> Iterator[LedgerRow]:
        """In the order in which requests came, as a trace has them."""
        first = 0 if since is None else round(since * 1e6)
        moments = self._fetch(
            "SELECT received, id FROM requests WHERE id >= ? AND received >= ? ORDER BY received",
            (first, first),
        )
        query = f"SELECT {self._select} FROM requests WHERE id = ?"
        for _, row_id in moments:
            # It may have come of age meanwhile.
            yield from map(_read, self._fetch(query, (row_id,)))

    def has_arms(self, *, since: float | None = None) -> bool:
        """Whether any request received since then was given an arm of an experiment."""
        [[found]] = self._fetch(
            "SELECT EXISTS(SELECT 1 FROM requests WHERE arm IS NOT NULL AND received >= ?)",
            (0 if since is None else round(since * 1e6),),
        )
        return bool(found)

    def has_slices(self, *, since: float | None = None) -> bool:
        """Whether any of these arms was one of a time slice."""
        if "slice_start" not in columns(self._connection):
            return False
        [[found]] = self._fetch(
            "SELECT EXISTS(SELECT 1 FROM requests WHERE slice_start IS NOT NULL"
            " AND arm IS NOT NULL AND received >= ?)",
            (0 if since is None else round(since * 1e6),),
        )
        return bool(found)

    def engine_samples(self, *, since: float | None = None) -> list[EngineSample]:
        """In order of time; none of a file of version 1."""
        if not columns(self._connection, "engine_samples"):
            return []
        names = EngineSample.__struct_fields__
        found = self._fetch(
            f"SELECT {', '.join(names)} FROM engine_samples WHERE at >= ? ORDER BY at",
            (0 if since is None else round(since * 1e6),),
        )
        return [
            EngineSample(**{**dict(zip(names, row, strict=True)), "at": row[0] / 1e6})
            for row in found
        ]

    def info(self) -> LedgerInfo:
        [[count, first, last]] = self._fetch(
            "SELECT count(*), min(received), max(received) FROM requests", ()
        )
        outcomes = self._fetch(
            "SELECT outcome, count(*) FROM requests GROUP BY outcome ORDER BY outcome", ()
        )
        [[pages]], [[size]] = (
            self._fetch("PRAGMA page_count", ()),
            self._fetch("PRAGMA page_size", ()),
        )
        return LedgerInfo(
            version=self.version,
            rows=count,
            bytes=pages * size,
            first_received=None if first is None else first / 1e6,
            last_received=None if last is None else last / 1e6,
            outcomes=dict(outcomes),
        )

    def _fetch(self, query: str, values: tuple[int, ...]) -> list[Any]:
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise LedgerError(str(error)) from None


class LedgerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Moments are seconds since 1970."""

    version: int
    rows: int
    bytes: int
    first_received: float | None
    last_received: float | None
    outcomes: dict[str, int]


@contextmanager
def open_ledger(path: Path) -> Iterator[LedgerReader]:
    """Also a file of an earlier version: columns that it lacks are None. Raises LedgerError."""
    if not path.is_file():
        raise LedgerError(f"{path}: no such file")
    try:
        connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=5.0)
    except sqlite3.Error as error:
        raise LedgerError(f"{path}: {error}") from None
    try:
        reader = LedgerReader(connection)
        if not reader.version:
            raise LedgerError("nothing is in it yet: a proxy whose ledger.path it is writes it")
        if not 0 < reader.version <= VERSION:
            raise LedgerError(f"it is of version {reader.version}; this prefold knows {VERSION}")
        yield reader
    except (sqlite3.Error, LedgerError) as error:
        foreign = getattr(error, "sqlite_errorname", "") == "SQLITE_NOTADB"
        raise LedgerError(f"{path}: {'it is no ledger' if foreign else error}") from None
    finally:
        connection.close()


def _read(row: tuple[Any, ...]) -> LedgerRow:
    named: dict[str, Any] = dict(zip(COLUMNS, row, strict=True))
    made = {name: value for name, value in named.items() if not name.endswith("_us")}
    for name, value in named.items():
        if name.endswith("_us"):
            made[name.removesuffix("_us")] = _seconds(value)
    gaps = made.pop("token_gaps")
    blocks = made["blocks"] or b""
    others: list[tuple[int, str]] = _json(made["other_events"], list[tuple[int, str]], [])
    return LedgerRow(
        **{
            **made,
            "received": made["received"] / 1e6,
            "slice_start": _seconds(made["slice_start"]),
            "round_start": _seconds(made["round_start"]),
            "streamed": bool(made["streamed"]),
            "labels": _json(made["labels"], dict[str, str], {}),
            "tokens": moments(named["first_token_us"], named["last_token_us"], gaps),
            "token_kinds": _json(made["token_kinds"], list[tuple[int, str]], []),
            "other_events": [(moment / 1e6, kind) for moment, kind in others],
            "blocks": [
                blocks[at : at + DIGEST_BYTES] for at in range(0, len(blocks), DIGEST_BYTES)
            ],
        }
    )


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / 1e6


def _json(text: str | None, kind: Any, default: Any) -> Any:
    return default if text is None else msgspec.json.decode(text, type=kind)


def moments(first_us: int | None, last_us: int | None, gaps: bytes | None) -> list[float]:
    """Seconds."""
    if first_us is None or last_us is None:
        return []
    if gaps is None:
        return [first_us / 1e6] if first_us == last_us else [first_us / 1e6, last_us / 1e6]
    after = first_us + np.frombuffer(gaps, dtype="<u4").astype(np.int64).cumsum()
    made: list[float] = [first_us / 1e6, *(after / 1e6).tolist()]
    return made
