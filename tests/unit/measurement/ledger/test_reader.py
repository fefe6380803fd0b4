"""What is read of a ledger: by the reader, and by a person through the view."""

from __future__ import annotations

import sqlite3
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.measurement.ledger import writer
from prefold.measurement.ledger.reader import COLUMNS, LedgerRow, open_ledger
from prefold.measurement.ledger.schema import LedgerError
from tests.support.ledger import WALL, ledger, record

MICROSECONDS = ("received", "slice_start", "round_start")


def viewed(path: Path) -> list[dict[str, Any]]:
    """As `sqlite3 FILE 'SELECT * FROM requests'` has it, taken for what docs/ledger.md says."""
    connection = sqlite3.connect(path)
    rows = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM requests").fetchall()
    connection.close()
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def as_viewed(row: LedgerRow) -> dict[str, Any]:
    made = msgspec.structs.asdict(row)
    times = {name.removesuffix("_us") for name in COLUMNS if name.endswith("_us")}
    us = {name: made.pop(name) for name in times}
    tokens = made.pop("tokens")
    steps = [round(moment * 1e6) for moment in tokens]
    gaps = [after - before for before, after in pairwise(steps)]
    return {
        **made,
        **{f"{name}_us": None if at is None else round(at * 1e6) for name, at in us.items()},
        **{name: None if made[name] is None else round(made[name] * 1e6) for name in MICROSECONDS},
        "token_gaps": gaps or None,
        "token_kinds": [list(one) for one in row.token_kinds] or None,
        "other_events": [[round(at * 1e6), kind] for at, kind in row.other_events] or None,
        "labels": row.labels or None,
        "blocks": b"".join(row.blocks).hex() or None,
        "conversation": None if row.conversation is None else row.conversation.hex(),
    }


def decoded(row: dict[str, Any]) -> dict[str, Any]:
    lists = ("labels", "token_gaps", "token_kinds", "other_events")
    return {
        name: msgspec.json.decode(value) if name in lists and value is not None else value
        for name, value in row.items()
    }


def test_the_view_says_what_the_reader_says(tmp_path: Path) -> None:
    """Of requests of every form: whole, streamed, refused before a backend was known."""
    kept = ledger(tmp_path / "l")
    kept.add(record(parsed=0.001, matched=0.002, encoded_tokens=100, removed_tokens=30))
    kept.add(
        record(
            7.25, streamed=True, tokens=[7.5, 7.5625, 8.0], token_kinds=[(0, "reasoning")],
            other_events=[(7.3, "role")], blocks=[1, 2], conversation=3, tenant="t", arm="a",
            slice_start=WALL, round_start=WALL - 60, compressor_waited_s=0.5, backend="b1",
        )
    )  # fmt: skip
    kept.add(record(model="", backend="", outcome="rejected", error="model_not_found"))
    kept.write()

    with open_ledger(tmp_path / "l") as reader:
        rows = [as_viewed(row) for row in reader.rows()]
    for read, seen in zip(rows, map(decoded, viewed(tmp_path / "l")), strict=True):
        assert {name: seen[name] for name in read} == read
        assert seen.keys() == read.keys()


requests = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.booleans()), max_size=30)


@given(requests=requests, since=st.integers(0, 50), until=st.integers(0, 50))
def test_rows_come_by_their_ends_and_by_their_arrivals(
    requests: list[tuple[int, int, bool]], since: int, until: int
) -> None:
    """In whatever batches they were written: those of the time that was asked for, each once."""
    ended = sorted(
        (start + lasted, start, number) for number, (start, lasted, _) in enumerate(requests)
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "l"
        kept = ledger(path)
        for end, start, number in ended:
            kept.add(record(float(start), end=float(end), request_id=f"{number}"))
            if requests[number][2]:
                kept.write()
        kept.write()
        with open_ledger(path) as reader:
            by_end = [row.request_id for row in reader.rows(since=WALL + since, until=WALL + until)]
            arrived = [row.received - WALL for row in reader.rows_by_arrival(since=WALL + since)]
            assert len({row.id for row in reader.rows()}) == len(requests)
            assert reader.info().rows == len(requests)

    assert by_end == [str(number) for _, start, number in ended if since <= start < until]
    assert arrived == sorted(start for start, _, _ in requests if start >= since)


def test_many_rows_are_several_packs(tmp_path: Path) -> None:
    """And their ids go on from one to the next."""
    kept = ledger(tmp_path / "l")
    for number in range(2 * writer.PACK_ROWS + 1):
        kept.add(record(request_id=str(number)))
    kept.write()

    with open_ledger(tmp_path / "l") as reader:
        rows = list(reader.rows())
    assert [row.request_id for row in rows] == [str(number) for number in range(len(rows))]
    assert [row.id - rows[0].id for row in rows] == list(range(2 * writer.PACK_ROWS + 1))


def test_a_damaged_pack_is_told(tmp_path: Path) -> None:
    """As everything else that cannot be read."""
    kept = ledger(tmp_path / "l")
    kept.add(record())
    kept.write()
    connection = sqlite3.connect(tmp_path / "l")
    with connection:
        connection.execute("UPDATE packs SET rows = '[[1, 2'")
    connection.close()

    with open_ledger(tmp_path / "l") as reader, pytest.raises(LedgerError, match="is damaged"):
        list(reader.rows())
