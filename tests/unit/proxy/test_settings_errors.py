"""What a wrong setting is told as: the place, the reason, and what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefold.proxy.errors import SettingsError
from prefold.proxy.settings import Settings
from prefold.proxy.settings_errors import choices, readable
from prefold.proxy.settings_file import load


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("port = 8001", "unknown setting port; did you mean server.port?"),
        ("[server]\npolicy = 'prefix'", "did you mean routing.policy?"),
        ("[retry]\nzzzzzz = 1", "unknown setting retry.zzzzzz; there are after_first_byte"),
        ("[routing]\npolicy = 'prefx'", "policy: 'prefx' is none of prefix, round_robin,"),
        ("[routing]\npolicy = 'prefx'", "; did you mean prefix?"),
        ("[[backends]]\nurl = 'http://a'\nengine = 'vlm'", "backends[0].engine: 'vlm' is none of"),
        ("[[backends]]\nurl = 'http://a'\nengine = 'vlm'", "; did you mean vllm?"),
        ("[models.'a/b']\ncompression = 'maybe'", "'maybe' is none of off, shadow, on, auto, "),
        ("[compression]\ndocuments = ['part']", "'part' is none of parts, member, delimited;"),
        ("[backends]\nurl = 'http://a'", "expected a list of tables: write [[backends]]"),
        ("[[keys]]\ntenant = 'a'", "keys[0]: sha256 is missing"),
        ("[server]\nlog_requests = 'yes'", "log_requests: expected true or false, got a text"),
        ("[timeouts]\nconnect_s = 0", "timeouts.connect_s: expected a number > 0"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_what_it_should_be(
    tmp_path: Path, text: str, told: str
) -> None:
    """In words of TOML, not of the library that reads it."""
    file = tmp_path / "prefold.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError) as error:
        load(file, env={})

    assert told in str(error.value)
    assert "`" not in str(error.value)


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("PREFOLD_SERVER__PORT", "abc", "server.port: expected a whole number, got a text"),
        ("PREFOLD_SERVER__PROT", "1", "unknown setting server.prot; did you mean server.port?"),
        ("PREFOLD_SERVR__PORT", "1", "unknown setting servr; did you mean server?"),
        ("PREFOLD_ROUTING__POLICY", "best", "'best' is none of prefix, "),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(
    variable: str, value: str, told: str
) -> None:
    """Whoever reads the file only would not find it."""
    with pytest.raises(SettingsError) as error:
        load(None, env={variable: value})

    assert told in str(error.value)
    assert f"environment variable {variable}" in str(error.value)


def test_a_mistake_in_the_file_is_not_blamed_on_other_variables(tmp_path: Path) -> None:
    """The environment holds other settings at the same time."""
    file = tmp_path / "prefold.toml"
    file.write_text("[timeouts]\nconnect_s = 0", encoding="utf-8")
    with pytest.raises(SettingsError) as error:
        load(file, env={"PREFOLD_SERVER__PORT": "1"})

    assert "environment" not in str(error.value)


def test_choices_of_what_is_no_choice_are_none() -> None:
    """And of what is not there, since it is asked for by a message only."""
    assert choices("server.port", Settings) == []
    assert choices("nothing.here", Settings) == []


def test_a_message_without_a_place_stays() -> None:
    """Such as of a document that is no table at all."""
    assert readable("Expected `object`, got `int`", Settings) == (
        "expected a table, got a whole number"
    )
