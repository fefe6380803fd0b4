"""Numbers that all workers of a machine see at once, in memory that they share.

Each number has a cell for each worker, written by that one alone (and by the parent once it has
died), so there are no locks: whoever reads adds up the cells. A cell is 8 aligned bytes, which are
never seen half written on 64-bit machines.
"""

from __future__ import annotations

import mmap
import os
import tempfile

CELL = 8


class Cells:
    """One number: what this worker says of it, and what the others do."""

    __slots__ = ("_all", "_own", "_row")

    def __init__(self, cells: memoryview[int], row: int | None) -> None:
        """`row` None: for one that only reads."""
        self._all = cells
        self._row = row
        self._own = 0

    def add(self, number: int) -> None:
        self.set(self._own + number)

    def set(self, number: int) -> None:
        if self._row is None:
            raise RuntimeError("this one only reads")
        self._own = number
        self._all[self._row] = number

    @property
    def own(self) -> int:
        return self._own

    @property
    def total(self) -> int:
        return sum(self._all)

    @property
    def others(self) -> int:
        return sum(self._all) - self._own

    def of(self, row: int) -> int:
        """What that one says."""
        return self._all[row]

    def of_others(self) -> list[int]:
        return [number for row, number in enumerate(self._all) if row != self._row]


class Table:
    """`numbers` numbers of `workers` cells each. The memory lives as long as a process has it."""

    def __init__(self, fd: int, *, workers: int, numbers: int) -> None:
        """`fd` is that of `new`, here or in the parent."""
        self._workers = workers
        self._memory = mmap.mmap(fd, workers * numbers * CELL)
        self._cells = memoryview(self._memory).cast("q")

    @classmethod
    def new(cls, *, workers: int, numbers: int) -> tuple[Table, int]:
        """A table of zeros, and a descriptor that children may inherit; the caller closes it."""
        fd = _memory()
        os.ftruncate(fd, workers * numbers * CELL)
        return cls(fd, workers=workers, numbers=numbers), fd

    def cells(self, number: int, row: int | None) -> Cells:
        start = number * self._workers
        return Cells(self._cells[start : start + self._workers], row)

    def clear(self, row: int) -> None:
        """What a worker that has died says no more."""
        for cell in range(row, len(self._cells), self._workers):
            if self._cells[cell]:
                self._cells[cell] = 0


def _memory() -> int:
    """A descriptor of a file that no other process can open by a name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("prefold")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
