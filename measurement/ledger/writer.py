"""The ledger as the proxy has it: records in, and a thread that writes them a few times a second.

A request never waits for it and never fails by it. What cannot be written waits, up to a bound;
what is beyond is dropped and counted.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from prefold.measurement.ledger.row import Pack, RowRules, pack_of
from prefold.measurement.ledger.samples import EngineSample
from prefold.measurement.ledger.schema import LedgerError
from prefold.measurement.ledger.store import Store, is_corrupt, move_aside
from prefold.measurement.record import RequestRecord

log = logging.getLogger(__name__)

MAX_WAITING = 4096
EVERY_S = 0.5
RETRY_S = 1.0
SAMPLE_EVERY_S = 5.0
TRIM_EVERY_S = 60.0
TRIM_EVERY_ROWS = 1024
"""Whichever comes first: rows of a quiet proxy come of age, too."""
PACK_ROWS = 128
"""While their pack is made the event loop waits for the interpreter: a row takes some
microseconds."""
UNFIT = (OverflowError, UnicodeEncodeError)
"""A record that no row can hold: a count beyond 64 bits, say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFigures:
    """Requests since start, and whether the file cannot be written now."""

    written: int
    dropped: int
    waiting: int
    faulted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Of the file (`max_age_s` 0: no age), and of what may wait for it."""

    max_bytes: float
    max_age_s: float
    max_waiting: int = MAX_WAITING


class Ledger:
    """`add` from any thread, `start` and `close` once. The clocks are those of the records and of
    the wall."""

    def __init__(
        self,
        path: Path,
        *,
        bounds: Bounds,
        rules: RowRules,
        labels: Callable[[], str | None],
        clock: Callable[[], float] = time.perf_counter,
        wall: Callable[[], float] = time.time,
        samples: Callable[[float], list[EngineSample]] | None = None,
    ) -> None:
        """Asked by the ledger's thread: `labels`, for those of each backend, as a JSON object;
        `samples`, for what engines say at that moment."""
        self._path = path
        self._bounds = bounds
        self._rules = rules
        self._labels = labels
        self._clock = clock
        self._wall = wall
        self._waiting: deque[RequestRecord] = deque()
        self._batch: list[RequestRecord] = []
        self._store: Store | None = None
        self._dropped = 0
        self._unfit = 0
        self._written = 0
        self._fault = ""
        self._samples = samples
        self._sample_at = 0.0
        self._trim_at = 0.0
        self._trim_rows = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, record: RequestRecord) -> None:
        """Do not change it any more."""
        if len(self._waiting) + len(self._batch) >= self._bounds.max_waiting:
            self._dropped += 1
        else:
            self._waiting.append(record)

    def figures(self) -> LedgerFigures:
        return LedgerFigures(
            written=self._written,
            dropped=self._dropped + self._unfit,
            waiting=len(self._waiting) + len(self._batch),
            faulted=bool(self._fault) or not self._thread.is_alive(),
        )

    def close(self, within_s: float = 5.0) -> None:
        """What waits is written, if that can be done at once."""
        self._stop.set()
        self._thread.join(within_s)

    def _run(self) -> None:
        while not self._stop.wait(RETRY_S if self._fault else EVERY_S):
            self.write()
        self.write()
        if self._store is not None:
            self._store.close()

    def write(self) -> None:
        """What waits, now. The thread's own, but for tests that do without the thread."""
        waiting, batch = self._waiting, self._batch
        while waiting and len(batch) < self._bounds.max_waiting:
            batch.append(waiting.popleft())
        try:
            if self._store is None:
                self._store = self._opened()
            if batch:
                self._write(self._store, batch)
            self._sample_if_due(self._store)
            self._trim_if_due(self._store)
        except sqlite3.Error as error:
            self._failed(f"{type(error).__name__}: {error}", corrupt=is_corrupt(error))
        except (OSError, LedgerError) as error:
            self._failed(str(error))
        else:
            self._recovered()

    def _sample_if_due(self, store: Store) -> None:
        now = self._wall()
        if self._samples is None or now < self._sample_at:
            return
        self._sample_at = now + SAMPLE_EVERY_S
        if found := [sample for sample in self._samples(now) if not sample.idle]:
            store.add_samples(found)

    def _trim_if_due(self, store: Store) -> None:
        now = self._wall()
        if now >= self._trim_at or self._written >= self._trim_rows:
            store.trim(now)
            self._trim_at = now + TRIM_EVERY_S
            self._trim_rows = self._written + TRIM_EVERY_ROWS

    def _opened(self) -> Store:
        bounds = self._bounds
        return Store(self._path, max_bytes=bounds.max_bytes, max_age_s=bounds.max_age_s)

    def _write(self, store: Store, batch: list[RequestRecord]) -> None:
        try:
            store.add(self._packs(batch))
            self._written += len(batch)
            batch.clear()
        except UNFIT:
            while batch:
                self._write_first(store, batch)

    def _write_first(self, store: Store, batch: list[RequestRecord]) -> None:
        try:
            store.add(self._packs(batch[:1]))
            self._written += 1
        except UNFIT:
            self._unfit += 1
        del batch[0]

    def _packs(self, batch: Sequence[RequestRecord]) -> Iterator[Pack]:
        clock, labels = self._wall() - self._clock(), self._labels()
        for at in range(0, len(batch), PACK_ROWS):
            some = batch[at : at + PACK_ROWS]
            yield pack_of(some, clock=clock, labels=labels, rules=self._rules)

    def _failed(self, reason: str, *, corrupt: bool = False) -> None:
        """One line when it begins, none while it lasts."""
        if self._store is not None:
            self._store.close()
            self._store = None
        if corrupt and (aside := self._moved_aside()) is not None:
            log.error("the ledger %s is damaged; it is now %s", self._path, aside.name)
            return
        if not self._fault:
            log.error("the ledger %s cannot be written: %s", self._path, reason)
        self._fault = reason

    def _moved_aside(self) -> Path | None:
        try:
            return move_aside(self._path)
        except OSError:
            return None

    def _recovered(self) -> None:
        if self._fault:
            self._fault = ""
            log.warning("the ledger is written again; %d requests are missing", self._dropped)
