"""Records to put into ledgers, and ledgers to put them into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefold.measurement.ledger.digests import Digests
from prefold.measurement.ledger.reader import LedgerRow, open_ledger
from prefold.measurement.ledger.row import RowRules
from prefold.measurement.ledger.writer import Bounds, Ledger
from prefold.measurement.record import RequestOutcome, RequestRecord

SECRET = b"a secret of the tests"


def rules(*, secret: bytes = SECRET, token_times: bool = True) -> RowRules:
    return RowRules(digests=Digests(secret), token_times=token_times)


class Clock:
    """One that stands still until it is set."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


WALL = 1_800_000_000.0


def ledger(path: Path, *, wall: Clock | None = None, **bounds: Any) -> Ledger:
    """Not started: `write` writes. Its records' clock is 0 at WALL, unless `wall` moves; backend b0
    has labels."""
    made = Bounds(**{"max_bytes": 2**30, "max_age_s": 0.0, **bounds})
    return Ledger(
        path,
        bounds=made,
        rules=rules(),
        labels=lambda: '{"b0":{"gpu":"H200"}}',
        clock=Clock(0.0),
        wall=wall if wall else Clock(WALL),
    )


def record(received: float = 0.0, **members: Any) -> RequestRecord:
    """A request that was answered a second later; `blocks` are all of its prompt's."""
    if blocks := members.get("blocks"):
        members |= {"blocks": blocks[:-1], "last_block": blocks[-1]}
    given = {
        "endpoint": "/v1/chat/completions",
        "received": received,
        "model": "m",
        "backend": "b0",
        "outcome": RequestOutcome.OK,
        "status": 200,
        "attempts": 1,
        "end": received + 1.0,
    }
    return RequestRecord(**{**given, **members})


def rows_of(path: Path) -> list[LedgerRow]:
    with open_ledger(path) as reader:
        return list(reader.rows())
