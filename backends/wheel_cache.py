"""A wheel fetched once with pip, checked, and unpacked into a cache folder (never installed).

A folder appears in the cache whole or not at all: it is unpacked beside its place and renamed, and
one lock per cache keeps two processes from fetching at the same time.
"""

from __future__ import annotations

import base64
import csv
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from prefold.backends import parent_death

PARTIAL = ".partial-"
_RAW_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")

Progress = Callable[[str, int, int], None]
"""Called with (what, bytes done, bytes in all); in all is 0 where a step has no measure."""


class FetchError(Exception):
    """The wheel could not be fetched, or what came is not what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    name: str
    version: str
    folder: str
    """Name of its folder in the cache."""
    sha256: Mapping[str, str]
    """By the wheel's file name. A build for a platform that is not listed is trusted as far as pip
    trusts it: pip compares the hash that its index gives."""


def ensure_wheel(wheel: Wheel, cache: Path, progress: Progress) -> Path:
    """The unpacked wheel, fetched if it is missing or damaged. Raises FetchError."""
    folder = cache / wheel.folder
    progress(f"checking {wheel.name} {wheel.version}", 0, 0)
    if folder.is_dir() and not damaged_files(folder):
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache):
        if folder.is_dir() and not damaged_files(folder):  # another process was faster
            return folder
        _remove_leftovers(cache)
        with tempfile.TemporaryDirectory(prefix=PARTIAL, dir=cache) as partial:
            file = _download(wheel, Path(partial), progress)
            _check(wheel, file, progress)
            progress(f"unpacking {wheel.name}", 0, 0)
            unpack(file, folder)
    return folder


def unpack(wheel_file: Path, folder: Path) -> None:
    """Put the wheel's files at `folder`, replacing what is there. Raises FetchError."""
    partial = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=folder.parent))
    try:
        with zipfile.ZipFile(wheel_file) as archive:
            archive.extractall(partial)
        if damaged := damaged_files(partial):
            raise FetchError(f"{wheel_file.name} is damaged: {', '.join(damaged)}")
        if folder.exists():
            shutil.rmtree(folder)
        partial.rename(folder)
    except zipfile.BadZipFile as error:
        raise FetchError(f"{wheel_file.name} is damaged: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def damaged_files(folder: Path) -> list[str]:
    """Files that differ from the sha256 in the wheel's own RECORD, or ["RECORD"] without one."""
    records = list(folder.glob("*.dist-info/RECORD"))
    if len(records) != 1:
        return ["RECORD"]
    with records[0].open(newline="") as rows:
        expected = [(row[0], row[1].removeprefix("sha256=")) for row in csv.reader(rows) if row[1]]
    return [name for name, digest in expected if _record_digest(folder / name) != digest]


def sha256_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _record_digest(file: Path) -> str:
    """The form RECORD uses: urlsafe base64 without padding; "" for a file that is not there."""
    if not file.is_file():
        return ""
    return base64.urlsafe_b64encode(bytes.fromhex(sha256_of(file))).rstrip(b"=").decode()


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    """The kernel lets go of the lock when its holder dies, however that happens."""
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove_leftovers(cache: Path) -> None:
    """Under the lock: whatever is still called partial belongs to a process that was killed."""
    for leftover in cache.glob(PARTIAL + "*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _download(wheel: Wheel, folder: Path, progress: Progress) -> Path:
    if find_spec("pip") is None:
        raise FetchError(
            f"{wheel.name} is fetched with pip, and this Python has none. "
            f"Run `{sys.executable} -m ensurepip`, then try again."
        )
    requirement = f"{wheel.name}=={wheel.version}"
    pip = [sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check", "download"]
    shown = progress_bar(version("pip"))
    options = ["--no-deps", "--only-binary=:all:", f"--progress-bar={shown}", f"--dest={folder}"]
    with subprocess.Popen(
        parent_death.command([*pip, *options, requirement]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            last_lines = _follow(process, wheel.name, progress)
        except BaseException:
            process.kill()  # an interrupted fetch takes pip with it
            raise
    files = list(folder.glob("*.whl"))
    if process.returncode != 0 or len(files) != 1:
        raise FetchError(f"pip could not fetch {requirement}:\n" + "\n".join(last_lines))
    return files[0]


def progress_bar(pip: str) -> str:
    """What a pip of this version can show that is read here: bytes from 24.1 on."""
    numbers = [int(part) for part in re.findall(r"\d+", pip)[:2]]
    return "raw" if numbers >= [24, 1] else "off"


def _follow(process: subprocess.Popen[str], name: str, progress: Progress) -> deque[str]:
    """Report pip's raw progress lines (from 24.1); give its last other lines, for an error."""
    progress(f"fetching {name}", 0, 0)
    last_lines: deque[str] = deque(maxlen=5)
    assert process.stdout is not None
    for line in process.stdout:
        if match := _RAW_PROGRESS.fullmatch(line.strip()):
            progress(f"fetching {name}", int(match[1]), int(match[2]))
        elif line.strip():
            last_lines.append(line.strip())
    return last_lines


def _check(wheel: Wheel, file: Path, progress: Progress) -> None:
    expected = wheel.sha256.get(file.name)
    if expected is None:
        progress(f"{file.name}: no sha256 known here, trusting the one of pip's index", 0, 0)
    elif (found := sha256_of(file)) != expected:
        raise FetchError(f"{file.name} has sha256 {found}, expected {expected}")
