"""What engines said of their load, in the ledger beside the requests."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from prefold.measurement.ledger.reader import open_ledger
from prefold.measurement.ledger.samples import EngineSample
from prefold.measurement.ledger.schema import MIGRATIONS, open_for_writing
from prefold.measurement.ledger.writer import SAMPLE_EVERY_S, Bounds, Ledger
from tests.support.ledger import WALL, Clock, record, rules


def sample(at: float, backend: str = "b0", in_flight: int = 1) -> EngineSample:
    """Of an engine that does not tell all."""
    return EngineSample(
        at=at, backend=backend, running=2, waiting=None, kv_usage=0.25, preemptions=None,
        in_flight=in_flight,
    )  # fmt: skip


def idle(at: float) -> EngineSample:
    return EngineSample(
        at=at, backend="idle", running=0, waiting=0, kv_usage=0.0, preemptions=3, in_flight=0
    )


def sampled(path: Path, wall: Clock, **bounds: float) -> Ledger:
    given = {"max_bytes": 2.0**30, "max_age_s": 0.0, **bounds}
    return Ledger(
        path,
        bounds=Bounds(**given),  # type: ignore[arg-type]
        rules=rules(),
        labels=lambda: None,
        clock=lambda: wall.now - WALL,
        wall=wall,
        samples=lambda now: [sample(now), idle(now)],
    )


def samples_of(path: Path, since: float | None = None) -> list[EngineSample]:
    with open_ledger(path) as ledger:
        return ledger.engine_samples(since=since)


def test_engines_are_asked_now_and_then(tmp_path: Path) -> None:
    """Every few seconds, and those that idle are left out; unknown stays unknown."""
    wall = Clock(WALL)
    kept = sampled(tmp_path / "l", wall)
    for step in range(11):
        wall.now = WALL + step * SAMPLE_EVERY_S / 5
        kept.write()

    assert samples_of(tmp_path / "l") == [sample(WALL + at * SAMPLE_EVERY_S) for at in range(3)]
    assert samples_of(tmp_path / "l", since=WALL + 1.0) == [
        sample(WALL + at * SAMPLE_EVERY_S) for at in (1, 2)
    ]


def test_samples_go_with_the_requests_of_their_time(tmp_path: Path) -> None:
    """When those come of age."""
    wall = Clock(WALL)
    kept = sampled(tmp_path / "l", wall, max_age_s=1000.0)
    for at in (0.0, 500.0, 1400.0):
        wall.now = WALL + at
        kept.add(record(at))
        kept.write()

    assert [one.at - WALL for one in samples_of(tmp_path / "l")] == [500.0, 1400.0]


def test_a_file_of_version_1_has_none(tmp_path: Path) -> None:
    """It is read as it is, and gets its table when it is written to."""
    path = tmp_path / "l"
    connection = sqlite3.connect(path, isolation_level=None)
    open_for_writing(connection, MIGRATIONS[:1])
    connection.close()
    assert samples_of(path) == []

    sampled(path, Clock(WALL)).write()

    assert samples_of(path) == [sample(WALL)]
