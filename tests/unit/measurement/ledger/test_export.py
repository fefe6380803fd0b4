"""Reading a ledger back: ranges, groups, and the formats of `prefold ledger export`."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefold.measurement.ledger.export import MooncakeTrace, as_csv, as_jsonl, write_parquet
from prefold.measurement.ledger.reader import COLUMNS, LedgerRow, open_ledger
from prefold.measurement.ledger.schema import LedgerError
from tests.support.ledger import WALL, ledger, record, rows_of
from tests.support.requirements import skip_or_fail


@pytest.fixture
def path(tmp_path: Path) -> Path:
    kept = ledger(tmp_path / "l")
    kept.add(record(5.0, request_id="b", tokens=[5.1, 5.2], blocks=[1, 2], conversation=3))
    kept.add(record(1.0, request_id="a", end=9.0, other_events=[(1.5, "role")], backend="b1"))
    kept.write()
    return tmp_path / "l"


@settings(max_examples=40, deadline=None)
@given(
    spans=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=12),
    since=st.none() | st.integers(-1, 60),
    until=st.none() | st.integers(-1, 60),
)
def test_a_range_is_of_when_requests_came(
    tmp_path_factory: pytest.TempPathFactory,
    spans: list[tuple[int, int]],
    since: int | None,
    until: int | None,
) -> None:
    """However long they took, as a filter over all rows would have it."""
    path = tmp_path_factory.mktemp("l") / "l"
    kept = ledger(path)
    for start, length in sorted(spans, key=sum):
        kept.add(record(float(start), end=float(start + length)))
    kept.write()
    with open_ledger(path) as reader:
        got = [
            row.received - WALL
            for row in reader.rows(
                since=None if since is None else WALL + since,
                until=None if until is None else WALL + until,
            )
        ]
        arrived = [row.received - WALL for row in reader.rows_by_arrival()]

    starts = [start for start, _ in spans]
    fit = [
        start
        for start in starts
        if (since is None or start >= since) and (until is None or start < until)
    ]
    assert sorted(got) == sorted(fit)
    assert arrived == sorted(starts)


def test_rows_are_read_beyond_one_page(tmp_path: Path) -> None:
    """Each once."""
    kept = ledger(tmp_path / "l")
    for number in range(1300):
        kept.add(record(float(number), request_id=str(number)))
    kept.write()

    assert [row.request_id for row in rows_of(tmp_path / "l")] == [str(n) for n in range(1300)]


def test_rows_are_grouped_by_names_and_labels(path: Path) -> None:
    """Those without the label are in a group of their own; figures are no groups."""
    rows = rows_of(path)
    assert [row.group("label:gpu") for row in rows] == ["H200", None]
    assert [row.group("backend") for row in rows] == ["b0", "b1"]
    with pytest.raises(ValueError, match="label:NAME"):
        rows[0].group("id")


def test_what_is_no_ledger_is_said_to_be_none(tmp_path: Path) -> None:
    """With the file's name, in one line."""
    (tmp_path / "text").write_text("no database at all, but long enough to be looked at" * 20)
    for name, reason in (("none", "no such file"), ("text", "it is no ledger")):
        with pytest.raises(LedgerError, match=f"{name}: .*{reason}"), open_ledger(tmp_path / name):
            pass


def test_every_member_of_a_row_is_exported(path: Path) -> None:
    """JSON lines and CSV say the same."""
    lines = [json.loads(line) for line in as_jsonl(rows_of(path))]
    table = list(csv.DictReader("".join(as_csv(rows_of(path))).splitlines()))

    assert [line["request_id"] for line in lines] == ["b", "a"]
    assert lines[0]["tokens"] == [0.1, 0.2]
    assert lines[1]["other_events"] == [[0.5, "role"]]
    assert [len(digest) for digest in lines[0]["blocks"]] == [16, 16]
    for line, row in zip(lines, table, strict=True):
        assert list(line) == list(row) == list(LedgerRow.__struct_fields__)
        for name, value in line.items():
            read = json.loads(row[name]) if isinstance(value, list | dict) else row[name]
            assert read == (
                value if isinstance(value, list | dict) else "" if value is None else str(value)
            )


def test_the_reader_knows_every_column() -> None:
    """Under its name, without the unit that the reader takes away."""
    fields = set(LedgerRow.__struct_fields__)
    stored = {name.removesuffix("_us") for name in COLUMNS} - {"token_gaps"}
    assert stored <= fields
    assert fields - stored == {"tokens"}


def test_parquet_has_the_same_with_types(path: Path, tmp_path: Path) -> None:
    """As pyarrow reads it."""
    try:
        import pyarrow.parquet as pq
    except ImportError:
        skip_or_fail("pyarrow is missing: pip install pyarrow")
    out = tmp_path / "l.parquet"
    assert write_parquet(rows_of(path), out) == 2

    read = pq.read_table(out).to_pylist()
    for got, row in zip(read, rows_of(path), strict=True):
        assert got["tokens"] == row.tokens
        assert dict(got["labels"]) == row.labels
        assert [(each["at"], each["kind"]) for each in got["other_events"]] == row.other_events
        assert got["blocks"] == [digest.hex() for digest in row.blocks]
        plain = ("id", "received", "request_id", "backend", "streamed", "status", "end", "arm")
        assert [got[name] for name in plain] == [getattr(row, name) for name in plain]


def test_a_trace_tells_which_beginnings_are_equal(tmp_path: Path) -> None:
    """Numbers in order of first appearance by arrival; the rest of a prompt is like no other."""
    kept = ledger(tmp_path / "l")
    same: dict[str, object] = {"encoded_tokens": 1, "output_tokens": 7}
    kept.add(record(2.0, prefix_tokens=1030, blocks=[11, 12], **same))
    kept.add(record(1.5, prefix_tokens=1024, blocks=[11, 13], output_tokens=None, tokens=[1.6]))
    kept.add(record(1.0, end=8.0, prefix_tokens=100, blocks=[], **same))
    kept.add(record(3.0, prefix_tokens=1030, blocks=[11, 12], **same))
    kept.add(record(4.0, prefix_tokens=1030, blocks=[11, 12]))  # nothing known of its answer
    kept.add(record(4.0))
    kept.write()
    trace = MooncakeTrace()
    with open_ledger(tmp_path / "l") as reader:
        lines = [json.loads(line) for line in trace.lines(reader.rows_by_arrival())]

    assert [line["timestamp"] for line in lines] == [0, 500, 1000, 2000]
    assert [line["input_length"] for line in lines] == [100, 1024, 1030, 1030]
    assert [line["output_length"] for line in lines] == [7, 1, 7, 7]
    assert [line["hash_ids"] for line in lines] == [[0], [1, 2], [1, 3, 4], [1, 3, 5]]
    assert (trace.written, trace.estimated, trace.left_out) == (4, 1, 2)
