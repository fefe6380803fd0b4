"""`prefold completion`, in the shell that it is for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from prefold.proxy.cli import main
from tests.support.requirements import skip_or_fail

COMMANDS = Path(sys.executable).parent


def completed(*words: str) -> list[str]:
    """What bash offers for the last word."""
    bash = shutil.which("bash") or skip_or_fail("no bash: apt-get install bash")
    script = (
        'source <(prefold completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1));'
        ' _prefold_completion prefold; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        [bash, "-c", script, "bash", "prefold", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{COMMANDS}:{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_bash_completes_commands_also_those_that_are_loaded_late() -> None:
    """Every command lives in a module of its own, or not."""
    assert completed("s") == ["serve", "simulate"]
    assert completed("tokenizer", "c") == ["convert"]


def test_bash_completes_options_and_their_values() -> None:
    """As click knows them."""
    assert completed("serve", "--ba") == ["--backend"]
    assert completed("serve", "--log-level", "de") == ["debug"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    """It calls prefold back, whatever it was started as."""
    done = CliRunner().invoke(main, ["completion", shell], prog_name="/somewhere/prefold")

    assert done.exit_code == 0
    assert f"_PREFOLD_COMPLETE={shell}_complete" in done.output
