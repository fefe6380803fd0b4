"""What a ledger tells, for the dashboard: `prefold report` and `prefold diagnose` of its last day,
run as processes of their own at a low priority, since they compute for seconds.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

SINCE = "24h"
KEPT_S = 300.0
PATIENCE_S = 240.0

Json = dict[str, Any]


class LedgerView:
    """Mutable. `path` is absolute; None: no ledger is kept. There is one reading at a time, and one
    in KEPT_S."""

    def __init__(self, path: Path | None, clock: Callable[[], float]) -> None:
        self._path = path
        self._clock = clock
        self._reading: asyncio.Task[None] | None = None
        self._began: float | None = None
        self._read: Json = {}

    def ask(self) -> Json:
        """What was read last, at once; what is too old is read again meanwhile. `state`: none,
        reading, ready or failed; `report` and `diagnosis` as the commands' --json have them."""
        if self._path is None:
            return {"state": "none"}
        now = self._clock()
        if self._began is None or (self._reading is None and now - self._began > KEPT_S):
            self._began = now
            self._reading = asyncio.create_task(self._renew(self._path), name="ledger view")
        if not self._read:
            return {"state": "reading"}
        return {**self._read, "since": SINCE, "age_s": round(now - self._began, 1)}

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _renew(self, path: Path) -> None:
        try:
            report = await _told("report", path)
            diagnosis = await _told("diagnose", path)
            self._read = {"state": "ready", "report": report, "diagnosis": diagnosis}
        except TimeoutError:
            reason = f"it takes longer than {PATIENCE_S:g} s: use prefold report"
            self._read = {"state": "failed", "reason": reason}
        except (OSError, ValueError) as error:
            self._read = {"state": "failed", "reason": str(error)}
        finally:
            self._reading = None


async def _told(command: str, path: Path) -> Json:
    """Raises TimeoutError; ValueError with what the command complained of."""
    process = await asyncio.create_subprocess_exec(
        *_low_priority(),
        *(sys.executable, "-m", "prefold.proxy.cli", command),
        *("--ledger", str(path), "--since", SINCE, "--json"),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        # The settings' file is not its business, nor are the secrets in its environment.
        env={name: value for name, value in os.environ.items() if "PREFOLD" not in name},
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            out, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise ValueError(said.decode(errors="replace").strip()[-500:] or "it failed")
    made: Json = msgspec.json.decode(out, type=dict)
    return made


def _low_priority() -> Sequence[str]:
    nice = shutil.which("nice")
    return () if nice is None else (nice, "-n", "10")
