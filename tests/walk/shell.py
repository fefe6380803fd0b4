"""Types the commands of a page into one bash, in a copy of the repository; ends what it started."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

ROOT = Path(__file__).parents[2]
COLUMNS = 80
"""Of the terminal that the pages' outputs were printed on."""


class ShellError(Exception):
    """A command failed; the message has its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """Variables, folders and background processes stay from block to block, as in a terminal."""

    process: subprocess.Popen[str]
    notes: Path
    """A folder outside the copy, for blocks and their outputs."""

    @classmethod
    @contextmanager
    def started(cls, folder: Path, notes: Path, environment: dict[str, str]) -> Iterator[Self]:
        """Every process that is left at the end is killed: the shell and its jobs are a session."""
        process = subprocess.Popen(
            # A command's failure ends the shell, as it would end a reader's patience.
            ["bash", "--norc", "-e", "-o", "pipefail"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            yield cls(process=process, notes=notes)
        finally:
            with ExitStack() as left:
                left.callback(_close, process.stdin)
                left.callback(_close, process.stdout)
                left.callback(process.wait)
                _kill_session(process.pid)

    def type(self, commands: str, name: str) -> str:
        """What they print, once the last one has ended. Raises ShellError where one fails."""
        block, out = self.notes / f"{name}.sh", self.notes / f"{name}.out"
        block.write_text(commands, encoding="utf-8")
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f". '{block}' </dev/null >'{out}' 2>&1; echo done\n")
        self.process.stdin.flush()
        ended = self.process.stdout.readline() != "done\n"
        printed = out.read_text(encoding="utf-8", errors="replace")
        if ended:
            raise ShellError(f"status {self.process.wait()}:\n{printed}")
        return printed


def copy_of_repository(folder: Path) -> Path:
    """What a clone of it would have, with changes that are not committed."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source, made = ROOT / name, folder / name
        made.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink() or source.is_file():
            shutil.copy2(source, made, follow_symlinks=False)
    return folder


def environment(*, port: str, admin_port: str, installed: bool) -> dict[str, str]:
    """A reader's: none of prefold's variables, but for ports that are free here. `installed`: with
    the commands of this environment."""
    made = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PREFOLD_", "PYTEST_"))
    }
    made |= {
        "COLUMNS": str(COLUMNS),
        "PREFOLD_SERVER__PORT": port,
        "PREFOLD_SERVER__ADMIN_PORT": admin_port,
        "PREFOLD_URL": f"http://127.0.0.1:{port}",
    }
    if installed:
        made["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{made['PATH']}"
    return made


def free_ports(number: int) -> list[str]:
    """Held all at once, so that they differ."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in sockets]


def left_running(session: int) -> list[int]:
    """Processes of the session, but for its first."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        state, its_session = fields[0], int(fields[3])
        if its_session == session and state != "Z" and int(folder.name) != session:
            found.append(int(folder.name))
    return found


def _kill_session(session: int) -> None:
    for pid in [*left_running(session), session]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _close(stream: IO[str] | None) -> None:
    if stream is not None:
        stream.close()
