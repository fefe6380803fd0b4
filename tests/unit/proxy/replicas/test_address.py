"""The [redis] table: what is refused, and what is never shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from prefold.proxy.check import print_settings
from prefold.proxy.errors import SettingsError
from prefold.proxy.settings_file import load


@pytest.mark.parametrize(
    ("toml", "problem"),
    [
        ('url = "redis://h"', "routing.secret"),
        ('url = "http://h"', "redis.url"),
        ('url = "redis://u:p@h"', "redis.password"),
        ('url = "redis://h?db=1"', "no options"),
        ('url = "redis://h"\nca_file = "x"', "redis.ca_file"),
        ('url = "redis://h"\nname = "a b"', "redis.name"),
        ('url = "redis://h:0"', "redis.url"),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, toml: str, problem: str) -> None:
    """Each with the name of the setting."""
    secret = "" if "routing" in problem else '[routing]\nsecret = "0123456789abcdef"\n'
    file = tmp_path / "prefold.toml"
    file.write_text(f"{secret}[redis]\n{toml}\n")
    with pytest.raises(SettingsError, match=re.escape(problem)):
        load(file, env={})


def test_the_password_is_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By `prefold check`, nor in the settings' own text."""
    file = tmp_path / "prefold.toml"
    secret = '[routing]\nsecret = "0123456789abcdef"\n'
    file.write_text(f'{secret}[redis]\nurl = "rediss+cluster://me@h:7000"\npassword = "pa55"\n')
    settings = load(file, env={})
    print_settings(settings)

    assert "pa55" not in capsys.readouterr().out + repr(settings)
