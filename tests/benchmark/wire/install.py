"""Peers fetched into the cache folder, each into an environment of its own, never into ours."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from prefold.backends.embedded import cache_folder

INSTALLED = ".installed"
FETCH_S = 600.0


class Unavailable(Exception):
    """Why a peer cannot be had here."""


def folder() -> Path:
    return cache_folder() / "bench-wire"


def virtual_environment(package: str, version: str) -> Path:
    """The Python of an environment that holds this package only. Raises Unavailable."""
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    home = folder() / f"{package}-{version}-{python}"
    if not (home / INSTALLED).exists():
        shutil.rmtree(home, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(home)])
        pip = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        _run([*pip, "install", "--quiet", "--only-binary=:all:", f"{package}=={version}"])
        (home / INSTALLED).touch()
    return home / "bin" / "python"


def debian_program(package: str, program: str) -> Path:
    """The system's, else Debian's package unpacked in the cache. Raises Unavailable."""
    if found := shutil.which(program, path="/usr/local/sbin:/usr/sbin:/usr/bin:/usr/local/bin"):
        return Path(found)
    home = folder() / package
    file = home / "usr" / "sbin" / program
    if not file.exists():
        if shutil.which("apt-get") is None:
            raise Unavailable(f"no {program} here, and no apt-get to fetch it with")
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as place:
            _run(["apt-get", "download", "--quiet", package], cwd=place)
            for archive in Path(place).glob("*.deb"):
                _run(["dpkg", "-x", str(archive), str(home)])
    if "not found" in _run(["ldd", str(file)]):
        raise Unavailable(f"libraries that {file} needs are not installed")
    return file


def _run(argv: list[str], cwd: str | None = None) -> str:
    """What it said. Raises Unavailable."""
    try:
        done = subprocess.run(
            argv, cwd=cwd, capture_output=True, text=True, errors="replace", timeout=FETCH_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{argv[0]}: {error}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise Unavailable(f"{' '.join(argv)}: {''.join(said)}")
    return done.stdout + done.stderr
