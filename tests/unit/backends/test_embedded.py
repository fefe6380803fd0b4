"""Where the embedded engine is kept, and on which CPUs it can run."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefold.backends.embedded import (
    CPU_FEATURES,
    MODEL,
    MODEL_FILE,
    cache_folder,
    ensure_engine,
    missing_cpu_features,
    model_path,
)
from prefold.backends.wheel_cache import FetchError

CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
flags\t\t: fpu vme sse2 {flags} erms
bugs\t\t: spectre_v1

processor\t: 1
flags\t\t: fpu
"""


@pytest.mark.parametrize(
    ("flags", "missing"),
    [
        ("avx2 fma f16c bmi2", []),
        ("f16c bmi2 fma avx512f", ["avx2"]),
        ("avx f16c_other", ["avx2", "fma", "f16c", "bmi2"]),
    ],
)
def test_missing_features_are_read_from_the_first_processor(flags: str, missing: list[str]) -> None:
    """Whole words of the flags line count, parts of words do not."""
    assert missing_cpu_features(CPUINFO.format(flags=flags)) == missing


def test_a_cpu_without_a_flags_line_is_not_refused() -> None:
    """What cannot be told is not claimed: Arm's cpuinfo has "Features" instead."""
    assert missing_cpu_features("Features\t: fp asimd\n") == []
    assert CPU_FEATURES == ("avx2", "fma", "f16c", "bmi2")


@pytest.mark.parametrize(
    ("env", "system", "expected"),
    [
        ({"PREFOLD_CACHE": "/c", "XDG_CACHE_HOME": "/x"}, "linux", Path("/c")),
        ({"XDG_CACHE_HOME": "/x"}, "linux", Path("/x/prefold")),
        ({"XDG_CACHE_HOME": ""}, "linux", Path.home() / ".cache/prefold"),
        ({}, "darwin", Path.home() / "Library/Caches/prefold"),
    ],
)
def test_the_cache_folder_follows_the_environment(
    env: dict[str, str], system: str, expected: Path
) -> None:
    """PREFOLD_CACHE first, then the system's custom."""
    assert cache_folder(env, system) == expected


def test_model_path_is_none_until_it_has_been_fetched(tmp_path: Path) -> None:
    """Asking for the path fetches nothing."""
    assert model_path(tmp_path) is None
    assert list(tmp_path.iterdir()) == []

    file = tmp_path / MODEL.folder / MODEL_FILE
    file.parent.mkdir(parents=True)
    file.touch()

    assert model_path(tmp_path) == file


def test_a_cache_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    """The error names the place and the variable that chooses another."""
    (tmp_path / "file").touch()

    with pytest.raises(FetchError, match=r"file/cache.*PREFOLD_CACHE"):
        ensure_engine(tmp_path / "file" / "cache")
