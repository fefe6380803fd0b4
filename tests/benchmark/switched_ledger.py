"""`prefold serve` whose ledger is switched off and on by SIGUSR1, for bench_ledger.

Off, nothing of a request is noted for it or given to it. The kernel's id of the ledger's thread
goes to the file that LEDGER_THREAD names.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefold.measurement.ledger.writer import Ledger
from prefold.proxy.cli import main
from prefold.proxy.conversations import Conversations
from prefold.proxy.ledger_notes import LedgerNotes


class Switch:
    def __init__(self) -> None:
        self.on = True

    def flip(self, *_: object) -> None:
        self.on = not self.on

    def guard(self, kind: type, name: str) -> None:
        """Its method of that name does something while this is on."""
        does: Callable[..., Any] = getattr(kind, name)

        def switched(*arguments: Any) -> Any:
            return does(*arguments) if self.on else None

        setattr(kind, name, switched)


def tell(path: Path) -> None:
    start = Ledger.start

    def started(ledger: Ledger) -> None:
        start(ledger)
        path.write_text(str(ledger._thread.native_id))

    setattr(Ledger, "start", started)  # noqa: B010 - mypy takes an assignment for a mistake


if __name__ == "__main__":
    switch = Switch()
    for kind, name in ((Conversations, "key"), (LedgerNotes, "prompt"), (Ledger, "add")):
        switch.guard(kind, name)
    tell(Path(os.environ["LEDGER_THREAD"]))
    signal.signal(signal.SIGUSR1, switch.flip)
    main()
