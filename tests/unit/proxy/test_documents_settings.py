"""Settings of documents, and that without them nothing is done."""

from pathlib import Path

import pytest

from prefold.proxy.documents.order import DocumentOrders
from prefold.proxy.errors import SettingsError
from prefold.proxy.settings import Settings
from prefold.proxy.settings_file import load
from prefold.proxy.wiring import documents_of


def settings(folder: Path, text: str) -> Settings:
    path = folder / "prefold.toml"
    path.write_text(text, encoding="utf-8")
    return load(path, env={})


def test_marks_are_set_for_a_model(tmp_path: Path) -> None:
    """Any of three kinds; another one is an error that names the key."""
    made = settings(tmp_path, '[models.m]\ndocuments = ["parts", "member", "delimited"]')
    assert made.models["m"].documents == ("parts", "member", "delimited")
    with pytest.raises(SettingsError, match=r"models\[\.\.\.\]\.documents|documents"):
        settings(tmp_path, '[models.m]\ndocuments = ["all"]')


@pytest.mark.parametrize("pair", [("", "x"), ("x", ""), ("x", "x"), ("x", "/x")])
def test_delimiters_can_be_told_apart(tmp_path: Path, pair: tuple[str, str]) -> None:
    """A beginning that is part of an end would be found in it."""
    with pytest.raises(SettingsError, match=r"documents\.start"):
        settings(tmp_path, f'[documents]\nstart = "{pair[0]}"\nend = "{pair[1]}"')


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("", False),
        ('[documents]\nfence = "x"\n[models.m]\naliases = ["a"]', False),
        ("[documents]\nby_header = true", True),
        ('[models.m]\ndocuments = ["parts"]', True),
    ],
)
def test_it_is_off_unless_asked_for(tmp_path: Path, text: str, used: bool) -> None:
    """Then a request is not looked at."""
    made = documents_of(settings(tmp_path, text), DocumentOrders())
    assert (made is not None) == used
