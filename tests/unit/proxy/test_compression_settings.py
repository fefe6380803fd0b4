"""Settings of compression, and that without them nothing is done."""

from pathlib import Path

import pytest

from prefold.proxy.compression.wiring import wanted
from prefold.proxy.errors import SettingsError
from prefold.proxy.settings import Settings
from prefold.proxy.settings_file import load

VLLM = 'protocol = "vllm"\ncompressor = "llmlingua2"'


def settings(folder: Path, text: str) -> Settings:
    path = folder / "prefold.toml"
    path.write_text(text, encoding="utf-8")
    return load(path, env={"SECRET": "s3cret"})


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("", False),
        ('[compression]\ncompressor = "null"\nrate = 0.3', False),
        ('[compression]\nmode = "auto"', True),
        ("[compression]\nby_header = true", True),
        ('[models.m]\ncompression = "shadow"', True),
        ('[models.m]\ncompression = "off"', False),
        ('[[arms]]\nname = "short"\ncompression = "on"\n[[arms]]\nname = "whole"', True),
    ],
)
def test_it_is_off_unless_asked_for(tmp_path: Path, text: str, used: bool) -> None:
    """Anywhere: for all, a model, an arm, or by requests."""
    assert wanted(settings(tmp_path, text)) == used


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ('mode = "half"', "compression.mode"),
        ("rate = 1.0", "compression.rate"),
        ("rate = 0", "compression.rate"),
        ('keep = [["", "x"]]', "compression.keep"),
        ('compressor = "llmlingua2"', "compression.model"),
        ('url = "https://host/path"', "compression.url"),
        ('url = "http://h:1"\nprotocol = "http"', "compression.protocol"),
        ('url = "http://h:1"\nprotocol = "vllm"', "compression.protocol"),
        (f'{VLLM}\nmodel = "/m"', "compression.protocol"),
        (f'{VLLM}\nurl = "http://h:1"', "compression.model"),
        ('url = "http://h:1"\nserved_model = "keep"', "compression.served_model"),
        ("deadline_s = 0", "compression.deadline_s"),
    ],
)
def test_what_cannot_be_is_an_error_that_names_the_key(
    tmp_path: Path, line: str, where: str
) -> None:
    """Before anything is started."""
    with pytest.raises(SettingsError, match=where.replace(".", r"\.")):
        settings(tmp_path, f"[compression]\n{line}")


def test_a_classifier_on_a_vllm_server_is_named_by_four(tmp_path: Path) -> None:
    """Protocol, compressor, URL, and the folder of the tokenizer."""
    made = settings(tmp_path, f'[compression]\n{VLLM}\nmodel = "/m"\nurl = "https://h:1"')
    assert (made.compression.protocol, made.compression.served_model) == ("vllm", "")


def test_its_key_may_stand_in_the_environment(tmp_path: Path) -> None:
    """And is never shown."""
    made = settings(tmp_path, '[compression]\nurl = "http://h:1"\napi_key = "env:SECRET"')
    assert made.compression.api_key == "s3cret"
    assert "s3cret" not in repr(made)
