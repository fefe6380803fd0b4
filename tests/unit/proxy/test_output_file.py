"""Files that cannot be written are told before the work, not after it."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from prefold.proxy.output_file import OutputFile


def test_a_file_that_can_be_made_or_replaced_is_taken_as_given(tmp_path: Path) -> None:
    """And is not touched yet."""
    there = tmp_path / "there"
    there.write_text("kept")

    for path in (there, tmp_path / "new"):
        assert OutputFile().convert(str(path), None, None) == str(path)
    assert there.read_text() == "kept"
    assert not (tmp_path / "new").exists()


def test_dash_is_standard_output_only_where_that_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere it is a file of that name: here a folder is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-").mkdir()

    assert OutputFile().convert("-", None, None) == "-"
    with pytest.raises(click.BadParameter, match="is a folder"):
        OutputFile(dash=False).convert("-", None, None)


@pytest.mark.parametrize(("name", "why"), [("none/x", "no folder"), (".", "is a folder")])
def test_what_cannot_be_written_is_a_usage_error(tmp_path: Path, name: str, why: str) -> None:
    """It names the path."""
    with pytest.raises(click.BadParameter, match=why):
        OutputFile().convert(str(tmp_path / name), None, None)
