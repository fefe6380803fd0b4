"""The ledger's tables, and how files of earlier versions become this one.

Requests that were written together are one row of `packs`, a JSON list of them, and the view
`requests` is what a person looks at. What the view's columns are is documented in docs/ledger.md,
which a test holds to this file.

`PRAGMA user_version` holds the version; `PRAGMA application_id` marks a file as a ledger.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence

from prefold.measurement.ledger.repacking import packs_of
from prefold.measurement.ledger.row import ORDER, Pack

APPLICATION_ID = 0x70666C64  # "pfld"

Step = str | Callable[[sqlite3.Connection], None]
"""Statements, parted by semicolons, or what makes them."""


def _repack(connection: sqlite3.Connection) -> None:
    connection.execute(
        """
        CREATE TABLE packs (
            id INTEGER PRIMARY KEY,
            requests INTEGER NOT NULL,
            received INTEGER NOT NULL,
            clock REAL NOT NULL,
            labels TEXT,
            blocks TEXT,
            rows TEXT NOT NULL
        )
        """
    )
    add_packs(connection, packs_of(connection))
    connection.execute("DROP TABLE request_rows")
    connection.execute("DROP TABLE kinds")


def add_packs(connection: sqlite3.Connection, packs: Iterable[Pack]) -> None:
    """The id of a pack is that of its first request, and the next ones follow."""
    latest = connection.execute("SELECT id + requests FROM packs ORDER BY id DESC LIMIT 1")
    free = next(latest, (0,))[0]
    latest.close()
    for pack in packs:
        row_id = max(free, pack.ended)
        connection.execute("INSERT INTO packs VALUES (?, ?, ?, ?, ?, ?, ?)", (row_id, *pack[1:]))
        free = row_id + pack.requests


MIGRATIONS: tuple[Step, ...] = (
    """
    CREATE TABLE kinds (
        kind INTEGER PRIMARY KEY,
        endpoint TEXT NOT NULL,
        model TEXT,
        backend TEXT,
        labels TEXT,
        tenant TEXT,
        arm TEXT,
        mode TEXT,
        reason TEXT,
        outcome TEXT NOT NULL,
        error TEXT,
        status INTEGER NOT NULL,
        attempts INTEGER NOT NULL,
        streamed INTEGER NOT NULL
    );
    CREATE TABLE request_rows (
        id INTEGER PRIMARY KEY,
        received INTEGER NOT NULL,
        request_id TEXT,
        kind INTEGER NOT NULL REFERENCES kinds,
        original_tokens INTEGER,
        removed_tokens INTEGER,
        prompt_tokens INTEGER,
        available_tokens INTEGER,
        expected_tokens INTEGER,
        reported_tokens INTEGER,
        output_tokens INTEGER,
        prefix_tokens INTEGER,
        moments TEXT NOT NULL,
        token_gaps BLOB,
        token_kinds TEXT,
        other_events TEXT,
        blocks BLOB,
        conversation BLOB
    );
    """,
    """
    CREATE TABLE engine_samples (
        at INTEGER NOT NULL,
        backend TEXT NOT NULL,
        running INTEGER,
        waiting INTEGER,
        kv_usage REAL,
        preemptions INTEGER,
        in_flight INTEGER NOT NULL
    );
    CREATE INDEX engine_samples_at ON engine_samples (at);
    """,
    """
    ALTER TABLE request_rows ADD COLUMN slice_start INTEGER;
    ALTER TABLE request_rows ADD COLUMN round_start INTEGER;
    """,
    """
    ALTER TABLE kinds ADD COLUMN compression TEXT;
    ALTER TABLE kinds ADD COLUMN compression_reason TEXT;
    """,
    _repack,
)
"""Step N takes a file from version N to version N + 1; version 0 is an empty file. Never change one
that was released: add another."""

VERSION = len(MIGRATIONS)


def _value(name: str) -> str:
    return f"json_extract(one.value, '$[{ORDER.index(name)}]')"


def _text(name: str) -> str:
    return f"nullif({_value(name)}, '') AS {name}"


def _us(seconds: str, name: str) -> str:
    return f"CAST(round(({seconds}) * 1e6) AS INTEGER) AS {name}"


def _after(name: str, column: str) -> str:
    return _us(f"{_value(name)} - {_value('received')}", f"{column}_us")


VIEW = (
    ",\n    ".join(
        (
            "CREATE VIEW requests AS SELECT\n    packs.id + one.key AS id",
            _us(f"{_value('received')} + packs.clock", "received"),
            *map(_text, ("request_id", "endpoint", "model", "backend")),
            "(SELECT value FROM json_each(packs.labels)"
            f" WHERE key = nullif({_value('backend')}, '')) AS labels",
            *map(_text, ("tenant", "arm", "mode", "reason", "outcome", "error")),
            *(f"{_value(name)} AS {name}" for name in ("status", "attempts", "streamed")),
            *map(_text, ("compression", "compression_reason")),
            f"{_value('encoded_tokens')} AS original_tokens",
            f"{_value('encoded_tokens')} - ifnull({_value('removed_tokens')}, 0) AS sent_tokens",
            *(
                f"{_value(f'{name}_tokens')} AS {name}_tokens"
                for name in ("removed", "prompt", "available", "expected", "reported")
            ),
            *(f"{_value(name)} AS {name}" for name in ("output_tokens", "prefix_tokens")),
            *(_after(name, name) for name in ("parsed", "encoded", "matched", "compressed")),
            _after("chosen", "leased"),
            *(_after(name, name) for name in ("sent", "headers", "first_event")),
            *(_after(name, name) for name in ("first_token", "last_token")),
            _us(
                f"ifnull({_value('end')}, {_value('received')}) - {_value('received')}",
                "end_us",
            ),
            _after("predicted_token", "predicted"),
            _after("fallback_token", "fallback"),
            _us(_value("compressor_waited_s"), "compressor_waited_us"),
            _us(_value("compressor_spent_s"), "compressor_spent_us"),
            *(
                f"{_value(name)} AS {name}"
                for name in ("token_gaps", "token_kinds", "other_events")
            ),
            f"ifnull(json_extract(packs.blocks, '$[' || {_value('blocks')} || ']'), '')"
            f" || {_value('last_block')} AS blocks",
            f"{_value('conversation')} AS conversation",
            *(_us(_value(name), name) for name in ("slice_start", "round_start")),
        )
    )
    + "\nFROM packs, json_each(packs.rows) AS one"
)
"""Of the tables as they are after the last step."""


class LedgerError(Exception):
    """The file is no ledger, or one that this version cannot use; the message says which."""


def open_for_writing(connection: sqlite3.Connection, steps: Sequence[Step] = MIGRATIONS) -> None:
    """Brings the file to version `len(steps)`, all of the way or not at all, and into WAL mode; one
    that is not ours to write stays as it is. For a connection in autocommit mode. Raises
    LedgerError and sqlite3.Error."""
    version = version_of(connection)
    if version > len(steps):
        raise LedgerError(f"it is of version {version}; this prefold knows {len(steps)}")
    connection.execute("PRAGMA journal_mode = WAL")
    if version < len(steps):
        _migrate(connection, steps)


def _migrate(connection: sqlite3.Connection, steps: Sequence[Step]) -> None:
    connection.execute("BEGIN EXCLUSIVE")
    try:
        version = version_of(connection)
        if version < len(steps):  # another process may have done it meanwhile
            connection.execute("DROP VIEW IF EXISTS requests")
            for step in steps[version:]:
                _take(connection, step)
            connection.execute(VIEW)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _take(connection: sqlite3.Connection, step: Step) -> None:
    if callable(step):
        step(connection)
    else:
        for statement in filter(str.strip, step.split(";")):
            connection.execute(statement)


def version_of(connection: sqlite3.Connection) -> int:
    """0 for an empty file. Raises LedgerError for a database of something else."""
    [application] = connection.execute("PRAGMA application_id").fetchone()
    [version] = connection.execute("PRAGMA user_version").fetchone()
    [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application != APPLICATION_ID:
        raise LedgerError("it is a database of something else")
    return int(version)
