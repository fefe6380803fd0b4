"""The ledger's file: opened, written in transactions, kept within its bounds. For one thread.

It knows packs, not requests. A process that is killed loses what it had not committed, never the
file: WAL, and no commit is undone by the end of a process.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from prefold.measurement.ledger.row import Pack
from prefold.measurement.ledger.samples import EngineSample
from prefold.measurement.ledger.schema import add_packs, open_for_writing

BUSY_S = 1.0
WAL_PAGES = 1000
WAL_BYTES = 4 * 1024 * 1024
TRIM_PACKS = 8192
"""Deleted at most for each bound at a time: more than is written in between."""
TRIM_STEP = 16
FILES = ("", "-wal", "-shm")


class Store:
    """Mutable; every method raises sqlite3.Error."""

    def __init__(self, path: Path, *, max_bytes: float, max_age_s: float) -> None:
        """Opens the file, makes or migrates it. `max_age_s` 0: no age. Raises LedgerError, OSError
        and sqlite3.Error."""
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        self._connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        try:
            open_for_writing(self._connection)
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
            self._connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
        except BaseException:
            self._connection.close()
            raise

    def add(self, packs: Iterable[Pack]) -> None:
        """All of them or none."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            add_packs(self._connection, packs)
            execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # SQLite itself may have rolled back: a full disk, say
                execute("ROLLBACK")
            raise

    def add_samples(self, samples: Iterable[EngineSample]) -> None:
        rows = [
            (
                round(sample.at * 1e6),
                sample.backend,
                sample.running,
                sample.waiting,
                sample.kv_usage,
                sample.preemptions,
                sample.in_flight,
            )
            for sample in samples
        ]
        self._connection.executemany(
            "INSERT INTO engine_samples VALUES (?, ?, ?, ?, ?, ?, ?)", rows
        )

    def trim(self, now: float) -> int:
        """Deletes the oldest packs beyond the bounds, some at a time; how many. `now` is the wall
        clock's."""
        deleted = 0
        if self._max_age_s:
            deleted = self._delete(round((now - self._max_age_s) * 1e6), TRIM_PACKS)
        for _ in range(TRIM_PACKS // TRIM_STEP):
            if self._used_bytes() <= self._max_bytes:
                break
            deleted += self._delete(2**63 - 1, TRIM_STEP)
        if deleted:
            # What engines said goes with the requests of its time.
            self._connection.execute(
                "DELETE FROM engine_samples"
                " WHERE at < (SELECT received FROM packs ORDER BY id LIMIT 1)"
            )
        return deleted

    def _delete(self, before: int, limit: int) -> int:
        """The oldest packs whose id is below."""
        oldest = "SELECT id FROM packs WHERE id < ? ORDER BY id LIMIT ?"
        return self._connection.execute(
            f"DELETE FROM packs WHERE id IN ({oldest})", (before, limit)
        ).rowcount

    def _used_bytes(self) -> int:
        """Without pages that were freed: new rows go there before the file grows."""
        pages, free, size = (
            self._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def close(self) -> None:
        self._connection.close()


def is_corrupt(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def move_aside(path: Path) -> Path:
    """A file that cannot be read, with what belongs to it, to a name beside it that says so; the
    name. Nothing is deleted. Raises OSError."""
    stamp = time.strftime("%Y%m%dT%H%M%S")
    aside, number = path.with_name(f"{path.name}.corrupt-{stamp}"), 1
    while aside.exists():
        aside = path.with_name(f"{path.name}.corrupt-{stamp}-{number}")
        number += 1
    for suffix in FILES:
        with suppress(FileNotFoundError):
            os.rename(f"{path}{suffix}", f"{aside}{suffix}")
    return aside
