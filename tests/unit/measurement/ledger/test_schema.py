"""The schema, its documentation, and files of other versions."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from prefold.measurement.ledger import reader
from prefold.measurement.ledger.reader import open_ledger
from prefold.measurement.ledger.schema import (
    MIGRATIONS,
    VERSION,
    LedgerError,
    open_for_writing,
)
from tests.support.ledger import ledger, record, rows_of

DOC = Path(__file__).parents[4] / "docs" / "ledger.md"
NEXT = (*MIGRATIONS, "ALTER TABLE packs ADD COLUMN more INTEGER")


def opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def columns(connection: sqlite3.Connection, name: str = "requests") -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]


def test_the_documented_columns_are_those_there_are(tmp_path: Path) -> None:
    """In the same order, for the file, the reader and the page."""
    connection = opened(tmp_path / "l")
    open_for_writing(connection)
    there = columns(connection)
    connection.close()

    assert tuple(there) == reader.COLUMNS
    assert re.findall(r"^\| `(\w+)` \|", DOC.read_text().split("## What is not")[0], re.M) == there


def test_an_empty_file_becomes_a_ledger(tmp_path: Path) -> None:
    """Version 0 is nothing at all."""
    (tmp_path / "l").touch()
    kept = ledger(tmp_path / "l")
    kept.add(record())
    kept.write()

    assert len(rows_of(tmp_path / "l")) == 1
    with open_ledger(tmp_path / "l") as read:
        assert read.version == VERSION


def test_a_file_of_an_earlier_version_keeps_its_rows(tmp_path: Path) -> None:
    """Each step is made once, and again it is nothing to do."""
    path = tmp_path / "l"
    kept = ledger(path)
    kept.add(record(request_id="before"))
    kept.write()
    connection = opened(path)
    for _ in range(2):
        open_for_writing(connection, NEXT)
    assert columns(connection, "packs")[-1] == "more"
    assert connection.execute("SELECT requests, more FROM packs").fetchall() == [(1, None)]
    assert connection.execute("PRAGMA user_version").fetchone() == (VERSION + 1,)
    connection.close()


def test_a_step_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """Also what earlier statements of it had done."""
    path = tmp_path / "l"
    connection = opened(path)
    open_for_writing(connection)
    steps = (*MIGRATIONS, "ALTER TABLE packs ADD COLUMN more; ALTER TABLE nothing ADD x")
    with pytest.raises(sqlite3.OperationalError):
        open_for_writing(connection, steps)
    assert "more" not in columns(connection, "packs")
    assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
    connection.close()


def test_a_file_of_a_later_version_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither written nor read nor moved aside: what it means is not known here."""
    path = tmp_path / "l"
    connection = opened(path)
    open_for_writing(connection, NEXT)
    connection.close()
    before = path.read_bytes()

    kept = ledger(path)
    kept.add(record())
    kept.write()

    assert path.read_bytes() == before
    assert f"of version {VERSION + 1}" in caplog.text
    with pytest.raises(LedgerError, match=f"of version {VERSION + 1}"), open_ledger(path):
        pass
    assert [file.name for file in tmp_path.iterdir() if "corrupt" in file.name] == []


def test_a_database_of_something_else_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong path must not cost anybody their data."""
    path = tmp_path / "theirs"
    connection = opened(path)
    connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    before = path.read_bytes()

    kept = ledger(path)
    kept.add(record())
    kept.write()

    assert "a database of something else" in caplog.text
    assert path.read_bytes() == before


def earlier(path: Path, version: int) -> Path:
    """A file as that version wrote it."""
    connection = sqlite3.connect(path)
    connection.executescript(Path(__file__).with_name(f"version_{version}.sql").read_text())
    connection.close()
    return path


@pytest.mark.parametrize(("version", "rows"), [(2, 1), (4, 3)])
def test_a_file_of_an_earlier_version_says_the_same_before_and_after(
    tmp_path: Path, version: int, rows: int
) -> None:
    """Read as a copy, then gone on with."""
    path = earlier(tmp_path / "l", version)
    before = rows_of(path)
    assert len(before) == rows
    kept = ledger(path)
    kept.add(record(30.0))
    kept.add(record(31.0, compression="original", compression_reason="costs"))
    kept.write()

    *first, plain, told = rows_of(path)
    assert first == before
    assert (plain.compression, told.compression_reason) == (None, "costs")


def test_what_an_earlier_version_kept_is_all_there(tmp_path: Path) -> None:
    """Each member of a row, or none where there was none."""
    _, row, refused = rows_of(earlier(tmp_path / "l", 4))

    unset = {"error"}
    assert {name for name in row.__struct_fields__ if getattr(row, name) in (None, [])} == unset
    assert (row.tokens, row.other_events) == ([0.1, 0.12, 0.7], [(0.008, "role"), (0.8, "done")])
    assert (refused.model, refused.error, refused.tokens) == (None, "model_not_found", [])


def test_what_earlier_versions_did_not_keep_is_unknown(tmp_path: Path) -> None:
    """From before compression's reasons were kept."""
    [row] = rows_of(earlier(tmp_path / "l", 2))

    assert (row.predicted, row.removed_tokens) == (12e-6, 300)
    unknown = (row.compression, row.compressor_waited, row.compressor_spent, row.slice_start)
    assert unknown == (None, None, None, None)
