"""The ledger's tables, and how files of earlier versions become this one.

What requests have in common (model, backend, outcome and the like) stands once in `kinds`, moments
are one JSON list, and the view `requests` is what a reader looks at: to write 20 values costs about
a third of what it costs to write 40. What the view's columns are is documented in docs/ledger.md,
which a test holds to this file.

`PRAGMA user_version` holds the version; `PRAGMA application_id` marks a file as a ledger.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

APPLICATION_ID = 0x70666C64  # "pfld"

MIGRATIONS: tuple[str, ...] = (
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
    CREATE VIEW requests AS SELECT
        id, received, request_id,
        endpoint, model, backend, labels, tenant, arm, mode, reason,
        outcome, error, status, attempts, streamed,
        original_tokens,
        original_tokens - ifnull(removed_tokens, 0) AS sent_tokens,
        removed_tokens,
        prompt_tokens, available_tokens, expected_tokens, reported_tokens, output_tokens,
        prefix_tokens,
        json_extract(moments, '$[0]') AS parsed_us,
        json_extract(moments, '$[1]') AS encoded_us,
        json_extract(moments, '$[2]') AS matched_us,
        json_extract(moments, '$[3]') AS compressed_us,
        json_extract(moments, '$[4]') AS leased_us,
        json_extract(moments, '$[5]') AS sent_us,
        json_extract(moments, '$[6]') AS headers_us,
        json_extract(moments, '$[7]') AS first_event_us,
        json_extract(moments, '$[8]') AS first_token_us,
        json_extract(moments, '$[9]') AS last_token_us,
        json_extract(moments, '$[10]') AS end_us,
        json_extract(moments, '$[11]') AS predicted_us,
        json_extract(moments, '$[12]') AS fallback_us,
        token_gaps, token_kinds, other_events, blocks, conversation
    FROM request_rows JOIN kinds USING (kind);
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
    DROP VIEW requests;
    CREATE VIEW requests AS SELECT
        id, received, request_id,
        endpoint, model, backend, labels, tenant, arm, mode, reason,
        outcome, error, status, attempts, streamed,
        original_tokens,
        original_tokens - ifnull(removed_tokens, 0) AS sent_tokens,
        removed_tokens,
        prompt_tokens, available_tokens, expected_tokens, reported_tokens, output_tokens,
        prefix_tokens,
        json_extract(moments, '$[0]') AS parsed_us,
        json_extract(moments, '$[1]') AS encoded_us,
        json_extract(moments, '$[2]') AS matched_us,
        json_extract(moments, '$[3]') AS compressed_us,
        json_extract(moments, '$[4]') AS leased_us,
        json_extract(moments, '$[5]') AS sent_us,
        json_extract(moments, '$[6]') AS headers_us,
        json_extract(moments, '$[7]') AS first_event_us,
        json_extract(moments, '$[8]') AS first_token_us,
        json_extract(moments, '$[9]') AS last_token_us,
        json_extract(moments, '$[10]') AS end_us,
        json_extract(moments, '$[11]') AS predicted_us,
        json_extract(moments, '$[12]') AS fallback_us,
        token_gaps, token_kinds, other_events, blocks, conversation, slice_start, round_start
    FROM request_rows JOIN kinds USING (kind);
    """,
    """
    ALTER TABLE kinds ADD COLUMN compression TEXT;
    ALTER TABLE kinds ADD COLUMN compression_reason TEXT;
    DROP VIEW requests;
    CREATE VIEW requests AS SELECT
        id, received, request_id,
        endpoint, model, backend, labels, tenant, arm, mode, reason,
        outcome, error, status, attempts, streamed,
        compression, compression_reason,
        original_tokens,
        original_tokens - ifnull(removed_tokens, 0) AS sent_tokens,
        removed_tokens,
        prompt_tokens, available_tokens, expected_tokens, reported_tokens, output_tokens,
        prefix_tokens,
        json_extract(moments, '$[0]') AS parsed_us,
        json_extract(moments, '$[1]') AS encoded_us,
        json_extract(moments, '$[2]') AS matched_us,
        json_extract(moments, '$[3]') AS compressed_us,
        json_extract(moments, '$[4]') AS leased_us,
        json_extract(moments, '$[5]') AS sent_us,
        json_extract(moments, '$[6]') AS headers_us,
        json_extract(moments, '$[7]') AS first_event_us,
        json_extract(moments, '$[8]') AS first_token_us,
        json_extract(moments, '$[9]') AS last_token_us,
        json_extract(moments, '$[10]') AS end_us,
        json_extract(moments, '$[11]') AS predicted_us,
        json_extract(moments, '$[12]') AS fallback_us,
        json_extract(moments, '$[13]') AS compressor_waited_us,
        json_extract(moments, '$[14]') AS compressor_spent_us,
        token_gaps, token_kinds, other_events, blocks, conversation, slice_start, round_start
    FROM request_rows JOIN kinds USING (kind);
    """,
)
"""Step N takes a file from version N to version N + 1; version 0 is an empty file. Never change one
that was released: add another."""

VERSION = len(MIGRATIONS)


class LedgerError(Exception):
    """The file is no ledger, or one that this version cannot use; the message says which."""


def open_for_writing(connection: sqlite3.Connection, steps: Sequence[str] = MIGRATIONS) -> None:
    """Brings the file to version `len(steps)`, all of the way or not at all, and into WAL mode; one
    that is not ours to write stays as it is. For a connection in autocommit mode. Raises
    LedgerError and sqlite3.Error."""
    version = version_of(connection)
    if version > len(steps):
        raise LedgerError(f"it is of version {version}; this prefold knows {len(steps)}")
    connection.execute("PRAGMA journal_mode = WAL")
    if version < len(steps):
        _migrate(connection, steps)


def _migrate(connection: sqlite3.Connection, steps: Sequence[str]) -> None:
    connection.execute("BEGIN EXCLUSIVE")
    try:
        # Another process may have done it meanwhile.
        for step in steps[version_of(connection) :]:
            for statement in filter(str.strip, step.split(";")):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def version_of(connection: sqlite3.Connection) -> int:
    """0 for an empty file. Raises LedgerError for a database of something else."""
    [application] = connection.execute("PRAGMA application_id").fetchone()
    [version] = connection.execute("PRAGMA user_version").fetchone()
    [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application != APPLICATION_ID:
        raise LedgerError("it is a database of something else")
    return int(version)


def columns(connection: sqlite3.Connection, name: str = "requests") -> list[str]:
    """Of a table or view of the file as it is, in order."""
    return [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
