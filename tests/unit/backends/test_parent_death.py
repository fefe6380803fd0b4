"""A command wrapped by parent_death goes when its parent does, and only then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from prefold.backends import parent_death

linux_only = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="PR_SET_PDEATHSIG is Linux's"
)

# The grandchild holds the write end of its standard output: its end of file is its death.
PARENT = """
import subprocess, time
from prefold.backends import parent_death
subprocess.Popen(parent_death.command(["sh", "-c", "echo up; exec sleep 600"]))
time.sleep(600)
"""


@linux_only
def test_a_wrapped_command_dies_with_its_killed_parent() -> None:
    """`sleep` knows nothing of its parent and still goes."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        parent.kill()

        assert parent.stdout.read() == b""  # returns once nobody holds the other end


@linux_only
def test_a_command_whose_parent_is_already_gone_does_not_start() -> None:
    """The race: the parent died before the kernel was asked, so the signal would never come."""
    someone_else = os.getppid()
    wrapped = [sys.executable, "-m", "prefold.backends.parent_death", str(someone_else)]
    result = subprocess.run([*wrapped, "echo", "started"], capture_output=True, text=True)

    assert result.returncode == 1
    assert result.stdout == ""
    assert "the parent process is gone" in result.stderr


def test_a_wrapped_command_is_the_command_itself() -> None:
    """Exec, not a second process: status and signals reach the program."""
    status = subprocess.run(parent_death.command(["sh", "-c", "exit 7"])).returncode
    killed = subprocess.run(parent_death.command(["sh", "-c", "kill -TERM $$"])).returncode

    assert (status, killed) == (7, -signal.SIGTERM)
