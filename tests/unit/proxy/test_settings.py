"""Settings from file, environment and flags."""

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from prefold.proxy.errors import SettingsError
from prefold.proxy.settings import Backend, Key, Model, Settings, load

EXAMPLE = Path(__file__).parents[3] / "prefold.example.toml"


def settings(tmp_path: Path, text: str, **env: str) -> Settings:
    path = tmp_path / "prefold.toml"
    path.write_text(text, encoding="utf-8")
    return load(path, env=env)


def test_nothing_given_is_the_defaults() -> None:
    """Loopback, and no backends."""
    made = load(None, env={})

    assert made == Settings()
    assert made.server.host == made.server.admin_host == "127.0.0.1"


def test_environment_wins_over_the_file_and_flags_over_both(tmp_path: Path) -> None:
    """Defaults < file < environment < flags."""
    path = tmp_path / "prefold.toml"
    path.write_text("[server]\nport = 1\nadmin_port = 2\ndrain_s = 3\n")
    env = {"PREFOLD_SERVER__ADMIN_PORT": "20", "PREFOLD_SERVER__PORT": "10", "OTHER": "x"}
    made = load(path, env=env, overrides={"server": {"port": 100}}).server

    assert (made.port, made.admin_port, made.drain_s) == (100, 20, 3.0)


def test_environment_values_may_be_plain_words(tmp_path: Path) -> None:
    """No TOML quoting is needed in a shell."""
    made = settings(tmp_path, "", PREFOLD_ROUTING__POLICY="least_load")

    assert made.routing.policy == "least_load"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[servr]\n", "unknown setting servr; did you mean server?"),
        ("[server]\nprot = 1", "unknown setting server.prot; did you mean server.port?"),
        (
            '[[backends]]\nurl = "http://a"\nkey = "k"',
            "unknown setting backends[0].key; did you mean backends[0].api_key?",
        ),
        (
            '[models."m/x"]\ntokeniser = "x"',
            'unknown setting models."m/x".tokeniser; did you mean models."m/x".tokenizer?',
        ),
        ('[server]\nport = "x"', "server.port: Expected `int`, got `str`"),
        ("[server]\nport = 70000", "server.port: Expected `int` <= 65535"),
        ("server = 3", "server: Expected `object`, got `int`"),
        ('[routing]\npolicy = "best"', "routing.policy: Invalid enum value 'best'"),
        ('[[backends]]\nname = "a"', "backends[0]: Object missing required field `url`"),
        ('[[backends]]\nurl = "a:80"', "backends[0].url: expected http://HOST:PORT"),
        ('[[backends]]\nurl = "http://a:99999"', "backends[0].url: expected http://HOST:PORT"),
        ('[[backends]]\nurl = "http://[::1"', "backends[0].url: expected http://HOST:PORT"),
        ('[[backends]]\nurl = "http://:pw@a"', "backends[0].url: only scheme, host and port"),
        ('[[backends]]\nurl = "http://a"\nname = "x\\n"', "backends[0].name: only printable"),
        (
            '[models.a]\naliases = ["x"]\n[models.b]\naliases = ["x"]',
            "models.\"b\".aliases: 'x' is that of another model",
        ),
        ('[[backends]]\nurl = "http://a/v1"', "backends[0].url: only scheme, host and port"),
        (
            '[[backends]]\nurl = "http://a"\n[[backends]]\nurl = "http://a"',
            "backends[1].name: 'a' is used twice",
        ),
        ("[server", "Expected ']' at the end of a table declaration"),
    ],
)
def test_every_mistake_names_the_key(tmp_path: Path, text: str, said: str) -> None:
    """And, for an unknown key, the nearest valid one."""
    with pytest.raises(SettingsError) as error:
        settings(tmp_path, text)

    assert said in str(error.value)


def test_a_mistyped_environment_variable_is_an_error_too(tmp_path: Path) -> None:
    """A setting that does nothing would be worse."""
    with pytest.raises(SettingsError, match=r"server\.prot"):
        settings(tmp_path, "", PREFOLD_SERVER__PROT="1")
    with pytest.raises(SettingsError, match="in the file only"):
        settings(tmp_path, "", PREFOLD_BACKENDS__URL="http://a")


def test_variables_of_others_are_left_alone(tmp_path: Path) -> None:
    """Kubernetes sets these for a Service called prefold; the two underscores make a setting."""
    made = settings(tmp_path, "", PREFOLD_PORT="tcp://10.0.0.1:80", PREFOLD_SERVICE_HOST="x")

    assert made == Settings()


def test_text_settings_stay_text(tmp_path: Path) -> None:
    """A secret of digits is no number."""
    assert settings(tmp_path, "", PREFOLD_ROUTING__SECRET="12345").routing.secret == "12345"


def test_the_example_file_is_the_defaults_and_holds_every_setting(tmp_path: Path) -> None:
    """prefold.example.toml shows each key once, at its default (examples of lists aside). Keys
    stand there as comments: a copied file must not lock its user out."""
    assert load(EXAMPLE, env={}).keys == ()
    text = re.sub(r"^#(?=[\w\[])", "", EXAMPLE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    made = settings(tmp_path, text)
    assert dataclasses.replace(made, backends=(), keys=(), models={}) == Settings()
    assert made.backends
    assert made.keys
    assert made.models

    shown = tomllib.loads(text)
    assert _keys(shown, made) == _keys(dataclasses.asdict(Settings()), made)


def test_every_line_of_the_example_has_a_comment() -> None:
    """A setting without an explanation is not documented."""
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if " = " in line and not line.startswith("#"):
            assert "#" in line or lines[number - 1].startswith("#"), line


def _keys(data: dict[str, Any], example: Settings) -> set[str]:
    tables = {
        f"{table}.{key}"
        for table, values in data.items()
        if table not in ("backends", "keys", "models")
        for key in values
    }
    backend = {field.name for field in dataclasses.fields(Backend)}
    model = {field.name for field in dataclasses.fields(Model)}
    key = {field.name for field in dataclasses.fields(Key)}
    for one in data.get("backends", ()):
        assert set(one) == backend
    for one in data.get("keys", ()):
        assert set(one) == key
    for one in data.get("models", {}).values():
        assert set(one) == model
    return tables


def test_flags_do_not_hide_a_table_of_the_wrong_type(tmp_path: Path) -> None:
    """The mistake is in the file, and said in one line."""
    path = tmp_path / "prefold.toml"
    path.write_text("server = 5\n[backends]\na = 1\n")
    with pytest.raises(SettingsError, match="server: expected a table"):
        load(path, env={}, overrides={"server": {"port": 1}})
    with pytest.raises(SettingsError, match="backends: expected"):
        load(path, env={}, backends=("http://a",))
