"""The cache of unpacked wheels: whole or not at all, checked on every use."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import prefold
from prefold.backends.wheel_cache import (
    PARTIAL,
    FetchError,
    Wheel,
    damaged_files,
    ensure_wheel,
    progress_bar,
    sha256_of,
    unpack,
)

CONTENT = {"tiny_part/__init__.py": b"", "tiny_part/data.bin": bytes(range(256)) * 40}
WHEEL_FILE = "tiny_part-1.0-py3-none-any.whl"


def build_wheel(folder: Path, *, spoil: str = "") -> Path:
    """A valid wheel; `spoil` names a file whose bytes will differ from its RECORD."""
    info = "tiny_part-1.0.dist-info"
    files = {
        **CONTENT,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny-part\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {
        name: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        for name, data in files.items()
    }
    record = "".join(f"{name},sha256={digests[name]},{len(files[name])}\n" for name in files)
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / WHEEL_FILE, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, b"other bytes" if name == spoil else data)
        archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    return folder / WHEEL_FILE


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all pip sees: real pip, no network."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    return folder


class Steps:
    """A Progress that remembers what it was told."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, what: str, done: int, total: int) -> None:
        self.seen.append(what)


def tiny(sha256: dict[str, str]) -> Wheel:
    return Wheel(name="tiny-part", version="1.0", folder="tiny-1.0", sha256=sha256)


@pytest.mark.parametrize(
    ("pip", "shown"),
    [("23.0.1", "off"), ("24.0", "off"), ("24.1b1", "raw"), ("24.1", "raw"), ("26.3.1", "raw")],
)
def test_an_older_pip_is_not_asked_for_what_it_lacks(pip: str, shown: str) -> None:
    """Debian 12 and Python 3.12.1 bring such ones: they refuse the option."""
    assert progress_bar(pip) == shown


def test_fetches_once_and_serves_from_the_cache_afterwards(index: Path, tmp_path: Path) -> None:
    """The second use needs no index."""
    file = build_wheel(index)
    wheel = tiny({WHEEL_FILE: sha256_of(file)})

    folder = ensure_wheel(wheel, tmp_path / "cache", Steps())
    file.unlink()
    again = ensure_wheel(wheel, tmp_path / "cache", Steps())

    assert again == folder == tmp_path / "cache" / "tiny-1.0"
    for name, data in CONTENT.items():
        assert (folder / name).read_bytes() == data


def test_only_one_of_many_fetches(index: Path, tmp_path: Path) -> None:
    """The others wait at the lock and take what it put there."""
    wheel = tiny({WHEEL_FILE: sha256_of(build_wheel(index))})
    steps = Steps()

    with ThreadPoolExecutor(4) as threads:
        jobs = [threads.submit(ensure_wheel, wheel, tmp_path / "cache", steps) for _ in range(4)]
        folders = {job.result() for job in jobs}

    assert folders == {tmp_path / "cache" / "tiny-1.0"}
    assert steps.seen.count("fetching tiny-part") == 1


def test_a_damaged_cached_file_is_fetched_again(index: Path, tmp_path: Path) -> None:
    """One changed byte in the cache is noticed, and repaired from the index."""
    wheel = tiny({WHEEL_FILE: sha256_of(build_wheel(index))})
    folder = ensure_wheel(wheel, tmp_path / "cache", Steps())
    data = bytearray(CONTENT["tiny_part/data.bin"])
    data[77] ^= 1
    (folder / "tiny_part/data.bin").write_bytes(data)
    assert damaged_files(folder) == ["tiny_part/data.bin"]

    ensure_wheel(wheel, tmp_path / "cache", Steps())

    assert damaged_files(folder) == []
    assert (folder / "tiny_part/data.bin").read_bytes() == CONTENT["tiny_part/data.bin"]


def test_a_wheel_with_another_sha256_is_refused(index: Path, tmp_path: Path) -> None:
    """A file that is not the pinned one never reaches the cache."""
    build_wheel(index)

    with pytest.raises(FetchError, match="expected 0000"):
        ensure_wheel(tiny({WHEEL_FILE: "0000"}), tmp_path / "cache", Steps())

    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_a_build_without_a_pinned_hash_is_said(index: Path, tmp_path: Path) -> None:
    """On a platform we have no sha256 for, the reader is told whose word is taken."""
    build_wheel(index)
    steps = Steps()

    ensure_wheel(tiny({}), tmp_path / "cache", steps)

    assert any("no sha256 known here" in step for step in steps.seen)


def test_a_failed_fetch_gives_pips_own_reason(index: Path, tmp_path: Path) -> None:
    """pip's last lines are in the error."""
    with pytest.raises(FetchError, match="No matching distribution found"):
        ensure_wheel(tiny({}), tmp_path / "cache", Steps())


def test_without_pip_the_error_gives_the_line_to_run(tmp_path: Path) -> None:
    """Some environments (uv's, for one) come without pip; `python -S` sees none either."""
    script = """
import sys
from pathlib import Path
from prefold.backends.wheel_cache import FetchError, Wheel, ensure_wheel
wheel = Wheel(name="tiny-part", version="1.0", folder="tiny-1.0", sha256={})
try:
    ensure_wheel(wheel, Path(sys.argv[1]), lambda what, done, total: None)
except FetchError as error:
    print(error)
"""
    source = Path(prefold.__file__).parent.parent
    result = subprocess.run(
        [sys.executable, "-S", "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source)},
    )

    assert f"Run `{sys.executable} -m ensurepip`" in result.stdout, result.stderr


def test_leftovers_of_a_killed_fetch_are_removed(index: Path, tmp_path: Path) -> None:
    """A partial folder is never taken for the real one, and goes with the next fetch."""
    build_wheel(index)
    leftover = tmp_path / "cache" / (PARTIAL + "killed")
    (leftover / "tiny_part").mkdir(parents=True)

    ensure_wheel(tiny({}), tmp_path / "cache", Steps())

    assert not leftover.exists()


@pytest.mark.parametrize("spoiled", ["content", "archive"])
def test_an_unpack_that_fails_leaves_nothing(tmp_path: Path, spoiled: str) -> None:
    """Neither a half folder nor a partial one stays behind, and what was there before does."""
    file = build_wheel(tmp_path / "wheels", spoil="tiny_part/data.bin")
    if spoiled == "archive":
        file.write_bytes(file.read_bytes()[:2000])
    cache = tmp_path / "cache"
    (cache / "tiny-1.0").mkdir(parents=True)
    (cache / "tiny-1.0" / "old").touch()

    with pytest.raises(FetchError, match="is damaged"):
        unpack(file, cache / "tiny-1.0")

    assert [path.relative_to(cache) for path in cache.rglob("*")] == [
        Path("tiny-1.0"),
        Path("tiny-1.0/old"),
    ]
