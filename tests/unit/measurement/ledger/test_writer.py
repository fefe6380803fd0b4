"""The ledger under faults and at its bounds, without its thread but where that is the subject."""

from __future__ import annotations

import resource
import sqlite3
from pathlib import Path

import pytest

from tests.support.ledger import WALL, Clock, ledger, record, rows_of


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [made.getMessage() for made in caplog.records]


def test_rows_are_in_order_of_their_ends_whatever_the_clock_does(tmp_path: Path) -> None:
    """Ids only grow, though a wall clock was set back; and no two are the same."""
    wall = Clock(WALL)
    kept = ledger(tmp_path / "l", wall=wall)
    for name, now in (("a", WALL), ("b", WALL - 3600), ("c", WALL + 5)):
        wall.now = now
        kept.add(record(request_id=name))
        kept.add(record(request_id=name))
        kept.write()

    rows = rows_of(tmp_path / "l")
    assert [row.request_id for row in rows] == ["a", "a", "b", "b", "c", "c"]
    assert all(row.id >= round((row.received + row.end) * 1e6) for row in rows)


def test_a_second_process_of_one_file_adds_to_it(tmp_path: Path) -> None:
    """Neither takes the other's ids."""
    one, two = ledger(tmp_path / "l"), ledger(tmp_path / "l")
    for number in range(3):
        for kept, backend in ((one, "b0"), (two, "b1")):
            kept.add(record(backend=backend, attempts=number))
            kept.write()

    rows = rows_of(tmp_path / "l")
    assert [(row.backend, row.attempts) for row in rows] == [
        (backend, number) for number in range(3) for backend in ("b0", "b1")
    ]


def test_beyond_the_bound_requests_are_dropped_and_counted(tmp_path: Path) -> None:
    """While nothing is written; those that came first are kept."""
    kept = ledger(tmp_path / "l", max_waiting=3)
    for number in range(5):
        kept.add(record(request_id=f"r{number}"))
    figures = kept.figures()
    assert (figures.waiting, figures.dropped, figures.written) == (3, 2, 0)

    kept.write()

    assert [row.request_id for row in rows_of(tmp_path / "l")] == ["r0", "r1", "r2"]
    assert (kept.figures().waiting, kept.figures().written) == (0, 3)


def test_a_file_that_is_locked_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line when it begins, one when it ends; nothing is lost meanwhile."""
    kept = ledger(tmp_path / "l")
    kept.write()
    other = sqlite3.connect(tmp_path / "l", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for name in ("a", "b"):
        kept.add(record(request_id=name))
        kept.write()
    assert kept._fault
    other.execute("ROLLBACK")
    other.close()
    kept.add(record(request_id="c"))
    kept.write()

    assert [row.request_id for row in rows_of(tmp_path / "l")] == ["a", "b", "c"]
    assert ["locked" in line for line in lines(caplog)] == [True, False]
    assert "is written again; 0 requests" in lines(caplog)[1]


def test_a_full_disk_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A batch that did not fit is written whole when there is room, and once."""
    kept = ledger(tmp_path / "l")
    kept.add(record(request_id="before"))
    kept.write()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "l-wal").stat().st_size + 4096, hard))
    try:
        for number in range(200):
            kept.add(record(request_id=f"r{number}"))
        kept.write()
        kept.write()
        assert kept._fault
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    kept.write()

    names = [row.request_id for row in rows_of(tmp_path / "l")]
    assert names == ["before", *(f"r{number}" for number in range(200))]
    assert len(lines(caplog)) == 2


def test_a_path_that_cannot_be_written_fails_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once, and the ledger begins when it becomes possible."""
    (tmp_path / "l").mkdir()
    kept = ledger(tmp_path / "l")
    for _ in range(3):
        kept.add(record())
        kept.write()
    assert len(lines(caplog)) == 1
    (tmp_path / "l").rmdir()
    kept.write()

    assert len(rows_of(tmp_path / "l")) == 3


@pytest.mark.parametrize("where", [0, 4096])
def test_a_damaged_file_is_moved_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, where: int
) -> None:
    """Whether its head is damaged or its tables: it is kept as it was, and a new one is begun."""
    path = tmp_path / "l"
    first = ledger(path)
    for _ in range(200):
        first.add(record())
    first.write()
    first._store.close()  # type: ignore[union-attr] # as a process does that ends
    whole = path.read_bytes()
    damaged = whole[:where] + b"\xff" * 4096 + whole[where + 4096 :]
    path.write_bytes(damaged)

    kept = ledger(path)
    kept.add(record(request_id="after"))
    kept.write()
    kept.write()

    assert [row.request_id for row in rows_of(path)] == ["after"]
    [aside] = [
        file for file in tmp_path.glob("l.corrupt-*") if not file.name.endswith(("-wal", "-shm"))
    ]
    assert aside.read_bytes() == damaged
    assert [aside.name in line for line in lines(caplog)] == [True]


def test_a_record_that_no_row_can_hold_costs_no_other(tmp_path: Path) -> None:
    """Whatever came into it."""
    kept = ledger(tmp_path / "l")
    kept.add(record(request_id="a"))
    kept.add(record(request_id="b", blocks=[2**64]))
    kept.add(record(request_id="c", model="\ud800"))
    kept.add(record(request_id="d"))
    kept.write()

    assert [row.request_id for row in rows_of(tmp_path / "l")] == ["a", "d"]
    assert (kept.figures().written, kept.figures().dropped) == (2, 2)
    assert not kept._fault


def test_its_thread_writes_what_waits_when_it_is_closed(tmp_path: Path) -> None:
    """The last requests of a process that ends are in the file."""
    kept = ledger(tmp_path / "l")
    kept.start()
    for number in range(100):
        kept.add(record(request_id=f"r{number}"))
    kept.close()

    assert len(rows_of(tmp_path / "l")) == 100


def test_old_rows_are_deleted(tmp_path: Path) -> None:
    """By the end of the request, and also where nothing new is written."""
    wall = Clock(WALL)
    kept = ledger(tmp_path / "l", wall=wall, max_age_s=3600.0)
    kept.add(record(request_id="old"))
    kept.write()
    wall.now += 1800
    kept.add(record(request_id="new"))
    kept.write()
    assert [row.request_id for row in rows_of(tmp_path / "l")] == ["old", "new"]
    wall.now += 1802
    kept.write()

    assert [row.request_id for row in rows_of(tmp_path / "l")] == ["new"]


def test_the_file_does_not_outgrow_its_bound(tmp_path: Path) -> None:
    """The latest rows are kept, and most of the room is used."""
    bound = 512 * 1024
    kept = ledger(tmp_path / "l", max_bytes=bound)
    for batch in range(30):
        for number in range(100):
            kept.add(record(request_id=f"{batch * 100 + number:0100}", blocks=[1] * 20))
        kept.write()
        assert (tmp_path / "l").stat().st_size < bound + 100 * 1024

    rows = rows_of(tmp_path / "l")
    assert rows[-1].request_id == f"{2999:0100}"
    names = [int(row.request_id or "") for row in rows]
    assert names == list(range(names[0], 3000))
    assert len(rows) * 300 > bound / 4
