"""`prefold key`: a fresh key, and the digest by which it is known."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from hashlib import sha256
from pathlib import Path

from prefold.proxy.settings_file import load

PREFOLD = [sys.executable, "-m", "prefold.proxy.cli"]


def run(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PREFOLD, "key", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_fresh_key_and_the_settings_that_let_it_in(tmp_path: Path) -> None:
    """The key itself is in the first line only; the rest can be appended to the settings."""
    shown = run("--tenant", 'team "é"').stdout
    key, _, block = shown.partition("\n\n")
    (tmp_path / "prefold.toml").write_text(block, encoding="utf-8")
    made = load(tmp_path / "prefold.toml", env={}).keys[0]

    assert (made.tenant, made.sha256) == ('team "é"', sha256(key.encode()).hexdigest())
    assert key not in block
    assert len(key) >= 43, "256 bits in base64"
    assert run().stdout.partition("\n")[0] != key
    assert tomllib.loads(block)["keys"][0]["tenant"] == 'team "é"'


def test_the_digest_of_a_key_that_is_there_already() -> None:
    """Read from standard input: an argument would be in the shell's history and in `ps`."""
    shown = run("--digest", given="s3cret\n")

    assert shown.stdout == sha256(b"s3cret").hexdigest() + "\n"
    assert "s3cret" not in shown.stdout + shown.stderr


def test_what_is_no_key_has_no_digest() -> None:
    """An empty one would let everybody in who sends none; blanks end a header's token."""
    for given in ("", "\n", "two words\n", "é\n"):
        shown = run("--digest", given=given)
        assert (shown.returncode, shown.stdout) == (2, "")
    assert run("--tenant", "").returncode == 2
