"""Rows of a ledger as typed values, for reports and exports. Reads while a proxy writes.

Knows nothing of how a row came about: that is `row`.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from heapq import heappop, heappush
from itertools import accumulate, islice, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from prefold.measurement.ledger.digests import HEX
from prefold.measurement.ledger.row import ORDER, US
from prefold.measurement.ledger.samples import EngineSample
from prefold.measurement.ledger.schema import VERSION, LedgerError, open_for_writing, version_of

PAGE_PACKS = 8
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

    def __init__(self, connection: sqlite3.Connection, version: int) -> None:
        """Use `open_ledger`. `version` is that of the file."""
        self._connection = connection
        self.version = version

    def rows(
        self, *, since: float | None = None, until: float | None = None
    ) -> Iterator[LedgerRow]:
        """Of requests received from `since` on and before `until`, seconds since 1970, in the order
        of their ends."""
        first = -math.inf if since is None else since
        end = math.inf if until is None else until
        for pack in self._packs(since):
            yield from (row for row in _rows_of(pack) if first <= row.received < end)

    def rows_by_arrival(self, *, since: float | None = None) -> Iterator[LedgerRow]:
        """In the order in which requests came, as a trace has them."""
        # A pack's earliest request may have come long before those of the packs before it.
        earliest = [
            received / US
            for (received,) in self._fetch(
                "SELECT received FROM packs WHERE id + requests > ? ORDER BY id", (_us(since),)
            )
        ]
        to_come = list(accumulate(reversed(earliest), min))[:-1]
        held: list[tuple[float, int, LedgerRow]] = []
        for pack in islice(self._packs(since), len(earliest)):  # and none that was added since
            for row in _rows_of(pack):
                if since is None or row.received >= since:
                    heappush(held, (row.received, row.id, row))
            until = to_come.pop() if to_come else -math.inf
            while held and held[0][0] < until:
                yield heappop(held)[2]
        yield from (row for _, _, row in sorted(held, key=itemgetter(0, 1)))

    def has_arms(self, *, since: float | None = None) -> bool:
        """Whether any request received since then was given an arm of an experiment."""
        return self._has("arm IS NOT NULL", since)

    def has_slices(self, *, since: float | None = None) -> bool:
        """Whether any of these arms was one of a time slice."""
        return self._has("slice_start IS NOT NULL AND arm IS NOT NULL", since)

    def engine_samples(self, *, since: float | None = None) -> list[EngineSample]:
        """In order of time."""
        names = EngineSample.__struct_fields__
        found = self._fetch(
            f"SELECT {', '.join(names)} FROM engine_samples WHERE at >= ? ORDER BY at",
            (_us(since),),
        )
        return [
            EngineSample(**{**dict(zip(names, row, strict=True)), "at": row[0] / US})
            for row in found
        ]

    def info(self) -> LedgerInfo:
        [[count, first]] = self._fetch("SELECT sum(requests), min(received) FROM packs", ())
        outcomes = self._fetch(
            "SELECT outcome, count(*), max(received) FROM requests GROUP BY outcome"
            " ORDER BY outcome",
            (),
        )
        [[pages]], [[size]] = (
            self._fetch("PRAGMA page_count", ()),
            self._fetch("PRAGMA page_size", ()),
        )
        return LedgerInfo(
            version=self.version,
            rows=count or 0,
            bytes=pages * size,
            first_received=None if first is None else first / US,
            last_received=max((last / US for _, _, last in outcomes), default=None),
            outcomes={outcome: requests for outcome, requests, _ in outcomes},
        )

    def _packs(self, since: float | None) -> Iterator[_Pack]:
        """Those that may hold requests of that time: an id is never earlier than the request's end,
        nor that than its beginning."""
        query = (
            "SELECT id, clock, labels, blocks, rows FROM packs"
            " WHERE id + requests > ? AND id > ? ORDER BY id LIMIT ?"
        )
        last = -1
        while page := self._fetch(query, (_us(since), last, PAGE_PACKS)):
            yield from page
            last = page[-1][0]

    def _has(self, condition: str, since: float | None) -> bool:
        [[found]] = self._fetch(
            f"SELECT EXISTS(SELECT 1 FROM requests WHERE {condition} AND received >= ?)",
            (_us(since),),
        )
        return bool(found)

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
    """A file of an earlier version is read as a copy that is brought to this one; what it lacks is
    None. Raises LedgerError."""
    if not path.is_file():
        raise LedgerError(f"{path}: no such file")
    with ExitStack() as stack:
        try:
            address = f"file:{quote(str(path))}?mode=ro"
            connection = _closing(stack, sqlite3.connect(address, uri=True, timeout=5.0))
            version = version_of(connection)
            if not version:
                raise LedgerError("nothing is in it yet: a proxy whose ledger.path it is writes it")
            if version > VERSION:
                raise LedgerError(f"it is of version {version}; this prefold knows {VERSION}")
            if version < VERSION:
                connection = _copy(stack, connection)
            yield LedgerReader(connection, version)
        except (sqlite3.Error, LedgerError) as error:
            foreign = getattr(error, "sqlite_errorname", "") == "SQLITE_NOTADB"
            raise LedgerError(f"{path}: {'it is no ledger' if foreign else error}") from None


def _closing(stack: ExitStack, connection: sqlite3.Connection) -> sqlite3.Connection:
    stack.callback(connection.close)
    return connection


def _copy(stack: ExitStack, connection: sqlite3.Connection) -> sqlite3.Connection:
    """Of this version. In a file that has no name: SQLite deletes it when it is closed."""
    copy = _closing(stack, sqlite3.connect("", isolation_level=None))
    connection.backup(copy)
    open_for_writing(copy)
    return copy


_Pack = tuple[int, float, str | None, str | None, str]
_decode_rows = msgspec.json.Decoder(list[list[Any]]).decode


def _rows_of(pack: _Pack) -> Iterator[LedgerRow]:
    first, clock, labels, blocks, rows = pack
    try:
        known = _json(labels, dict[str, dict[str, str]], {})
        digests = [_parted(some) for some in _json(blocks, list[str], [])]
        decoded = _decode_rows(rows)
    except msgspec.DecodeError as error:
        raise LedgerError(f"pack {first} is damaged: {error}") from None
    for number, values in enumerate(decoded, first):
        row = dict(zip_longest(ORDER, values))
        row["labels"] = known.get(row["backend"], {})
        row["blocks"] = _blocks(row, digests)
        yield _row(number, row, clock)


def _json(text: str | None, kind: Any, default: Any) -> Any:
    return default if text is None else msgspec.json.decode(text, type=kind)


def _blocks(row: dict[str, Any], digests: list[list[bytes]]) -> list[bytes]:
    if row["last_block"] is None:
        return []
    before = [] if row["blocks"] is None else digests[row["blocks"]]
    return [*before, bytes.fromhex(row["last_block"])]


def _parted(digests: str) -> list[bytes]:
    return [bytes.fromhex(digests[at : at + HEX]) for at in range(0, len(digests), HEX)]


def _row(number: int, row: dict[str, Any], clock: float) -> LedgerRow:
    start = row["received"]

    def after(name: str) -> float | None:
        return None if row[name] is None else _whole_us(row[name] - start)

    def span(name: str) -> float | None:
        return None if row[name] is None else _whole_us(row[name])

    first, last = after("first_token"), after("last_token")
    original = row["encoded_tokens"]
    return LedgerRow(
        id=number,
        received=_whole_us(start + clock),
        request_id=row["request_id"] or None,
        endpoint=row["endpoint"],
        model=row["model"] or None,
        backend=row["backend"] or None,
        labels=row["labels"],
        tenant=row["tenant"] or None,
        arm=row["arm"],
        mode=row["mode"] or None,
        reason=row["reason"] or None,
        outcome=row["outcome"],
        error=row["error"] or None,
        status=row["status"],
        attempts=row["attempts"],
        streamed=bool(row["streamed"]),
        compression=row["compression"] or None,
        compression_reason=row["compression_reason"] or None,
        original_tokens=original,
        sent_tokens=None if original is None else original - (row["removed_tokens"] or 0),
        removed_tokens=row["removed_tokens"],
        prompt_tokens=row["prompt_tokens"],
        available_tokens=row["available_tokens"],
        expected_tokens=row["expected_tokens"],
        reported_tokens=row["reported_tokens"],
        output_tokens=row["output_tokens"],
        prefix_tokens=row["prefix_tokens"],
        parsed=after("parsed"),
        encoded=after("encoded"),
        matched=after("matched"),
        compressed=after("compressed"),
        leased=after("chosen"),
        sent=after("sent"),
        headers=after("headers"),
        first_event=after("first_event"),
        first_token=first,
        last_token=last,
        end=after("end") or 0.0,
        predicted=after("predicted_token"),
        fallback=after("fallback_token"),
        compressor_waited=span("compressor_waited_s"),
        compressor_spent=span("compressor_spent_s"),
        tokens=moments(first, last, row["token_gaps"]),
        token_kinds=[(at, kind) for at, kind in row["token_kinds"] or ()],
        other_events=[(us / US, kind) for us, kind in row["other_events"] or ()],
        blocks=row["blocks"],
        conversation=None if row["conversation"] is None else bytes.fromhex(row["conversation"]),
        slice_start=span("slice_start"),
        round_start=span("round_start"),
    )


def _us(since: float | None) -> int:
    return 0 if since is None else round(since * US)


def _whole_us(seconds: float) -> float:
    return round(seconds * US) / US


def moments(first: float | None, last: float | None, gaps: Sequence[int] | None) -> list[float]:
    """Seconds, as `first` and `last`; `gaps` are microseconds."""
    if first is None or last is None:
        return []
    if gaps is None:
        return [first] if first == last else [first, last]
    us = round(first * US)
    return [moment / US for moment in accumulate(gaps, initial=us)]
