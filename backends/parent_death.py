"""A child process that cannot outlive its parent, even when the parent is killed with SIGKILL.

`die_with_parent` is for our own children; `python -m prefold.backends.parent_death PID COMMAND...`
gives the same to a program that knows nothing of it. Linux only; elsewhere it does nothing, and a
child of ours notices the end of its standard input instead.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(parent: int) -> None:
    """Ask the kernel for SIGKILL when the thread that started us ends.

    "Thread", not "process": a parent has to start such a child from a thread that lives as long as
    the child should (its main thread). If `parent` is already gone, the process ends here.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    # The parent may have died before the call: then the signal never comes.
    if os.getppid() != parent:
        sys.exit("the parent process is gone")


def command(argv: list[str]) -> list[str]:
    """`argv` wrapped so that it dies with this process (PR_SET_PDEATHSIG survives an exec)."""
    return [sys.executable, "-m", "prefold.backends.parent_death", str(os.getpid()), *argv]


def main() -> None:
    parent, *argv = sys.argv[1:]
    die_with_parent(int(parent))
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main()
