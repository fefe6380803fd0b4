"""A ledger's rows in forms that others read: JSON lines, CSV, Parquet, and traces as Mooncake's.

None of them holds a text of a prompt or an answer, since the ledger holds none.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from prefold.measurement.ledger.reader import LedgerRow
from prefold.measurement.ledger.schema import LedgerError

TRACE_BLOCK = 512
PARQUET_ROWS = 4096
MISSING = "Parquet needs pyarrow: pip install 'prefold[parquet]'"


def flat(row: LedgerRow) -> dict[str, Any]:
    """Digests as hex."""
    made = msgspec.structs.asdict(row)
    made["blocks"] = [digest.hex() for digest in row.blocks]
    made["conversation"] = None if row.conversation is None else row.conversation.hex()
    return made


def as_jsonl(rows: Iterable[LedgerRow]) -> Iterator[str]:
    for row in rows:
        yield msgspec.json.encode(flat(row)).decode() + "\n"


def as_csv(rows: Iterable[LedgerRow]) -> Iterator[str]:
    """With a header; lists and mappings as JSON, None as nothing."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(LedgerRow.__struct_fields__)
    for row in rows:
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
        writer.writerow(map(_cell, flat(row).values()))
    yield buffer.getvalue()


def _cell(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if isinstance(value, list | dict) else value


def write_parquet(rows: Iterable[LedgerRow], path: Path) -> int:
    """How many; the file is there when all of them are in it. Raises LedgerError, without pyarrow,
    and OSError."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise LedgerError(MISSING) from None
    schema = pa.schema([(name, _arrow_type(pa, name)) for name in LedgerRow.__struct_fields__])
    count = 0
    part = path.with_name(f"{path.name}.part")
    with pq.ParquetWriter(part, schema, compression="zstd") as writer:
        for batch in _batches(map(_arrow_row, rows), PARQUET_ROWS):
            writer.write_table(pa.Table.from_pylist(batch, schema=schema))
            count += len(batch)
    part.replace(path)
    return count


TEXTS = frozenset(
    ("request_id", "endpoint", "model", "backend", "tenant", "arm", "mode", "reason", "outcome")
) | {"error", "compression", "compression_reason"}
COUNTS = frozenset(("id", "status", "attempts"))


def _arrow_type(pa: Any, name: str) -> Any:
    nested = {
        "streamed": pa.bool_(),
        "labels": pa.map_(pa.string(), pa.string()),
        "tokens": pa.list_(pa.float64()),
        "token_kinds": pa.list_(pa.struct([("from", pa.int32()), ("kind", pa.string())])),
        "other_events": pa.list_(pa.struct([("at", pa.float64()), ("kind", pa.string())])),
        "blocks": pa.list_(pa.string()),
        "conversation": pa.string(),
    }
    if name in nested:
        return nested[name]
    if name in TEXTS:
        return pa.string()
    return pa.int64() if name in COUNTS or name.endswith("_tokens") else pa.float64()


def _arrow_row(row: LedgerRow) -> dict[str, Any]:
    made = flat(row)
    made["labels"] = list(row.labels.items())
    made["token_kinds"] = [{"from": start, "kind": kind} for start, kind in row.token_kinds]
    made["other_events"] = [{"at": at, "kind": kind} for at, kind in row.other_events]
    return made


def _batches(rows: Iterable[dict[str, Any]], size: int) -> Iterator[list[dict[str, Any]]]:
    batch = []
    for row in rows:
        batch.append(row)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


@dataclass(slots=True)
class MooncakeTrace:
    """Requests in the order of their arrival, to lines of Mooncake's format. Mutable."""

    written: int = 0
    estimated: int = 0
    """Of those, how many have four bytes for a token, since their ids were not known."""
    left_out: int = 0
    """Requests of which the prompt's blocks or the answer's length are not known."""
    _numbers: dict[bytes, int] = field(default_factory=dict)
    _next: int = 0

    def lines(self, rows: Iterable[LedgerRow]) -> Iterator[str]:
        """`timestamp` in milliseconds after the first of them. Ids are numbers in order of first
        appearance, one for each 512 tokens and one, never seen twice, for the rest of a prompt."""
        start: float | None = None
        for row in rows:
            output = row.output_tokens if row.output_tokens is not None else len(row.tokens) or None
            length = row.prefix_tokens
            if not length or output is None or len(row.blocks) != length // TRACE_BLOCK:
                self.left_out += 1
                continue
            start = row.received if start is None else start
            self.written += 1
            self.estimated += row.original_tokens is None
            yield (
                msgspec.json.encode(
                    {
                        "timestamp": round((row.received - start) * 1000),
                        "input_length": length,
                        "output_length": output,
                        "hash_ids": self._ids(row.blocks, rest=bool(length % TRACE_BLOCK)),
                    }
                ).decode()
                + "\n"
            )

    def _ids(self, blocks: list[bytes], *, rest: bool) -> list[int]:
        ids = []
        for digest in blocks:
            number = self._numbers.get(digest)
            if number is None:
                number = self._numbers[digest] = self._new()
            ids.append(number)
        return [*ids, self._new()] if rest else ids

    def _new(self) -> int:
        self._next += 1
        return self._next - 1
