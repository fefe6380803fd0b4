"""What a command shows of its work while it lasts: on standard error, and only where that is a
terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress
from rich.status import Status


class Working:
    """A moving line. Hidden at first, whenever the command prints, and when the context ends."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._status: Status | None = None

    def say(self, what: str) -> None:
        if not self._console.is_terminal:
            return
        if self._status is None:
            self._status = Status(what, console=self._console)
            self._status.start()
        else:
            self._status.update(what)

    def hide(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.hide()


@contextmanager
def working(what: str) -> Iterator[None]:
    with Working() as line:
        line.say(what)
        yield


@contextmanager
def fetching() -> Iterator[Callable[[str, int, int], None]]:
    """A Progress of the engine's cache: each step is a line, wherever it goes; bytes are a bar."""
    console = Console(stderr=True, highlight=False, markup=False)
    with Progress(
        "{task.description}",
        BarColumn(),
        DownloadColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=False,
    ) as bar:
        task = bar.add_task("", visible=False)

        def show(what: str, done: int, total: int) -> None:
            if total:
                bar.update(task, description=what, completed=done, total=total, visible=True)
                return
            bar.update(task, visible=False)
            console.print(what, soft_wrap=True)

        yield show
