"""Settings from file, environment and flags."""

import dataclasses
import re
import tomllib
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from prefold.proxy.errors import SettingsError
from prefold.proxy.settings import Arm, Backend, Key, Mask, Model, Settings
from prefold.proxy.settings_checks import SECRETS, warnings_of
from prefold.proxy.settings_file import load

DIGEST = sha256(b"key").hexdigest()
FOLLOWED = '[[backends]]\nurl = "http://a"\nkv_events = "{}"\n'
SLICES = "[experiment]\nslice_s = 600\n"
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
        ('[server]\nport = "x"', "server.port: expected a whole number, got a text in quotes"),
        ("[server]\nport = 70000", "server.port: expected a whole number <= 65535"),
        ("server = 3", "server: expected a table, got a whole number"),
        ('[routing]\npolicy = "best"', "routing.policy: 'best' is none of prefix, round"),
        ('[[backends]]\nname = "a"', "backends[0]: url is missing"),
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
        (
            '[[backends]]\nurl = "http://a"\nca_file = "x"',
            "backends[0].ca_file: its url is not https",
        ),
        (
            '[[backends]]\nurl = "http://a"\napi_key = "k\\r\\nX: y"',
            "backends[0].api_key: only printable ASCII",
        ),
        ('[server]\ntls_key = "x"', "server.tls_certificate: tls_certificate and tls_key go"),
        ('[server]\ntls_certificate = "x"', "server.tls_key: tls_certificate and tls_key go"),
        ('[server]\nadmin_host = "0.0.0.0"', "server.admin_key: needed, since admin_host"),
        ('[server]\nadmin_host = "admin.example"', "server.admin_key: needed"),
        ('[server]\ncors_origins = ["a.example"]', "server.cors_origins: 'a.example' is not"),
        ('[server]\ncors_origins = ["http://a/b"]', "server.cors_origins: 'http://a/b' is not"),
        ('[server]\ncors_origins = ["null"]', "server.cors_origins: 'null' is not"),
        (f'[[keys]]\ntenant = ""\nsha256 = "{DIGEST}"', "keys[0].tenant: printable characters"),
        (f'[[keys]]\ntenant = "a\\n"\nsha256 = "{DIGEST}"', "keys[0].tenant: printable"),
        ('[[keys]]\ntenant = "a"\nsha256 = "sk-1"', "keys[0].sha256: 64 hex digits"),
        (
            f'[[keys]]\ntenant = "a"\nsha256 = "{DIGEST}"\n'
            f'[[keys]]\ntenant = "b"\nsha256 = "{DIGEST.upper()}"',
            "keys[1].sha256: the same key as keys[0]",
        ),
        ('[[arms]]\nname = ""', "arms[0].name: printable characters, at least one"),
        ('[[arms]]\nname = "a"\n[[arms]]\nname = "a"', "arms[1].name: 'a' is used twice"),
        ('[[arms]]\nname = "a"\nweight = inf', "arms[0].weight: a finite number"),
        ('[[arms]]\nname = "a"\nweight = 0', "arms: all weights are 0"),
        (
            '[[arms]]\nname = "a"\npolicy = "random"',
            "arms[0].policy: policies share caches and queues, so that they can be compared by",
        ),
        (SLICES, "experiment.slice_s: two [[arms]] at least take turns"),
        (SLICES + "washout_s = 600", "experiment.slice_s: a finite number greater than washout_s"),
        ("[experiment]\nslice_s = inf", "experiment.slice_s: a finite number greater than"),
        (
            SLICES + '[[arms]]\nname = "a"\n[[arms]]\nname = "b"\nweight = 0.5',
            "arms[1].weight: with experiment.slice_s each arm has as many slices",
        ),
        (
            SLICES + '[[arms]]\nname = "a"\n[[arms]]\nname = "b"\nmodels = ["m"]',
            "arms[1].models: with experiment.slice_s those of all arms are the same",
        ),
        ('[[arms]]\nname = "a"\nlabel = {}', "unknown setting arms[0].label; did you mean"),
        (
            '[[backends]]\nurl = "http://a"\n[routing]\npinned_backend = "b"',
            "routing.pinned_backend: no backend is named 'b'",
        ),
        (FOLLOWED.format("ipc:///x"), "backends[0].kv_events: expected tcp://HOST:PORT"),
        (FOLLOWED.format("tcp://a:99999"), "backends[0].kv_events: expected tcp://HOST:PORT"),
        (FOLLOWED.format("tcp://:5557"), "backends[0].kv_events: expected tcp://HOST:PORT"),
        (
            FOLLOWED.format("tcp://a:1") + 'kv_replay = "a:1"',
            "backends[0].kv_replay: expected tcp://HOST:PORT",
        ),
        (
            FOLLOWED.format("tcp://a:1") + 'kv_replay = "tcp://*:2"',
            "backends[0].kv_replay: only an engine binds it",
        ),
        (
            FOLLOWED.format("auto") + 'kv_topic = "t"',
            "backends[0].kv_events: kv_replay and kv_topic need an endpoint",
        ),
        (
            '[[backends]]\nurl = "http://a"\nkv_replay = "tcp://a:1"',
            "backends[0].kv_events: kv_replay and kv_topic need an endpoint",
        ),
        (
            FOLLOWED.format("tcp://*:1") + 'name = "b"\n' + FOLLOWED.format("tcp://[::]:1"),
            "backends[1].kv_events: bound already for backends[0]",
        ),
        (
            FOLLOWED.format("tcp://a:1")
            + '[[backends]]\nurl = "http://b"\nkv_events = "tcp://a:1"\nkv_topic = "t"',
            "backends[1].kv_topic: must tell apart who shares an endpoint",
        ),
        (
            "[server]\nworkers = 2\n" + FOLLOWED.format("tcp://*:1"),
            "backends[0].kv_events: only one of the server.workers could bind it",
        ),
        ("[server", "Expected ']' at the end of a table declaration"),
    ],
)
def test_every_mistake_names_the_key(tmp_path: Path, text: str, said: str) -> None:
    """And, for an unknown key, the nearest valid one."""
    with pytest.raises(SettingsError) as error:
        settings(tmp_path, text)

    assert said in str(error.value)


@pytest.mark.parametrize("endpoint", ["auto", "tcp://a:5557", "tcp://[::1]:1", "tcp://*:65535"])
def test_kv_events_are_followed_where_they_are_said_to_be(tmp_path: Path, endpoint: str) -> None:
    """Connected to or bound here; several backends may share an endpoint that is connected to."""
    workers = "" if "*" in endpoint else "[server]\nworkers = 2\n"
    first = FOLLOWED.format(endpoint)
    others = "".join(
        f'[[backends]]\nurl = "http://{name}"\nkv_events = "tcp://b:1"\nkv_topic = "{name}"\n'
        for name in "bc"
    )
    made = settings(tmp_path, workers + first + others)

    assert [one.kv_events for one in made.backends] == [endpoint, "tcp://b:1", "tcp://b:1"]


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
    bare = dataclasses.replace(made, backends=(), keys=(), masks=(), arms=(), models={})
    assert bare == Settings()
    assert made.backends
    assert made.keys
    assert made.masks
    assert made.arms
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
        if table not in ("backends", "keys", "masks", "arms", "models")
        for key in values
    }
    backend = {field.name for field in dataclasses.fields(Backend)}
    model = {field.name for field in dataclasses.fields(Model)}
    key = {field.name for field in dataclasses.fields(Key)}
    mask = {field.name for field in dataclasses.fields(Mask)}
    for one in data.get("backends", ()):
        assert set(one) == backend
    for one in data.get("keys", ()):
        assert set(one) == key
    for one in data.get("masks", ()):
        assert set(one) == mask
    for one in data.get("arms", ()):
        assert set(one) == {field.name for field in dataclasses.fields(Arm)}
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


SECRET_PLACES = [
    ("[server]\nadmin_key{}", lambda made: made.server.admin_key),
    ("[routing]\nsecret{}", lambda made: made.routing.secret),
    ('[[backends]]\nurl = "http://a"\napi_key{}', lambda made: made.backends[0].api_key),
]


@pytest.mark.parametrize(("place", "read"), SECRET_PLACES)
def test_secrets_may_stand_in_files(
    tmp_path: Path, place: str, read: Callable[[Settings], str]
) -> None:
    """One trailing line break is the editor's; anything else belongs to the secret."""
    file = tmp_path / "secret"
    for text in ("s3cret", "s3cret\n", "s3cret\r\n"):
        file.write_bytes(text.encode())
        assert read(settings(tmp_path, place.format(f'_file = "{file}"'))) == "s3cret"


@pytest.mark.parametrize(("place", "read"), SECRET_PLACES)
def test_a_secret_that_cannot_be_read_names_its_key(
    tmp_path: Path, place: str, read: Callable[[Settings], str]
) -> None:
    """Missing, empty or given twice; no error quotes one."""
    file, key = tmp_path / "secret", place.rpartition("\n")[2].format("_file")
    missing = place.format(f'_file = "{tmp_path / "none"}"')
    with pytest.raises(SettingsError, match=rf"{key}: cannot read .*No such file"):
        settings(tmp_path, missing)
    for content, said in ((b"", "is empty"), (b"\n", "is empty"), (b"\xff", "is not UTF-8")):
        file.write_bytes(content)
        with pytest.raises(SettingsError, match=rf"{key}: .*{said}"):
            settings(tmp_path, place.format(f'_file = "{file}"'))
    file.write_text("SENTINEL")
    both = place.format(' = "SENTINEL"') + "\n" + key.rpartition(".")[2] + f' = "{file}"'
    with pytest.raises(SettingsError, match="give one of them") as error:
        settings(tmp_path, both)
    assert "SENTINEL" not in str(error.value)


def test_the_key_of_a_backend_may_stand_in_the_environment(tmp_path: Path) -> None:
    """`env:NAME`, since no variable of ours can name one backend of many."""
    text = '[[backends]]\nurl = "http://a"\napi_key = "env:ENGINE_KEY"'
    assert settings(tmp_path, text, ENGINE_KEY="k").backends[0].api_key == "k"
    for env in ({}, {"ENGINE_KEY": ""}):
        with pytest.raises(SettingsError, match=r"backends\[0\].api_key: .*ENGINE_KEY is not set"):
            settings(tmp_path, text, **env)


def test_secrets_are_not_printed(tmp_path: Path) -> None:
    """Settings may end up in a log, as a whole, some day."""
    text = (
        '[server]\nadmin_key = "SENTINEL"\n[routing]\nsecret = "SENTINEL"\n'
        '[redis]\npassword = "SENTINEL"\n[[backends]]\nurl = "http://a"\napi_key = "SENTINEL"'
    )
    made = settings(tmp_path, text)

    assert "SENTINEL" not in repr(made)
    assert text.count("SENTINEL") == len(SECRETS)


@pytest.mark.parametrize(
    ("host", "is_open"),
    [
        *((host, False) for host in ("127.0.0.1", "localhost", "::1", "127.9.9.9")),
        *((host, True) for host in ("0.0.0.0", "::", "", "10.0.0.1", "here.example")),
    ],
)
def test_an_open_port_is_warned_of(tmp_path: Path, host: str, is_open: bool) -> None:
    """Without keys anybody may use the backends; with keys but no TLS they can be read on the
    way. Both may be meant, so neither is refused."""
    bare = settings(tmp_path, f'[server]\nhost = "{host}"')
    keys = (Key(tenant="a", sha256=DIGEST),)
    with_keys = dataclasses.replace(bare, keys=keys)
    tls = dataclasses.replace(bare.server, tls_key="k", tls_certificate="c")

    assert ["no [[keys]]" in said for said in warnings_of(bare)] == [True] * is_open
    assert ["without TLS" in said for said in warnings_of(with_keys)] == [True] * is_open
    assert warnings_of(dataclasses.replace(with_keys, server=tls)) == []


def test_arms_without_a_ledger_are_warned_of(tmp_path: Path) -> None:
    """Nobody could tell afterwards what they did."""
    arms = '[[arms]]\nname = "a"\n'
    kept = '[ledger]\npath = "l"\n'

    assert ["no ledger" in said for said in warnings_of(settings(tmp_path, arms))] == [True]
    assert warnings_of(settings(tmp_path, kept + arms)) == []
    assert warnings_of(settings(tmp_path, kept + "digests = false\n" + arms)) != []


def test_slices_without_a_wash_out_are_warned_of(tmp_path: Path) -> None:
    """Each would begin with the caches of the arm before."""
    arms = '[ledger]\npath = "l"\n[[arms]]\nname = "a"\n[[arms]]\nname = "b"\npolicy = "random"\n'
    made = settings(tmp_path, SLICES + arms)

    assert (made.experiment.slice_s, made.experiment.washout_s) == (600.0, 60.0)
    assert warnings_of(made) == []
    told = warnings_of(settings(tmp_path, SLICES + "washout_s = 0\n" + arms))
    assert ["washout_s is 0" in said for said in told] == [True]


def test_arms_of_different_models_are_warned_of(tmp_path: Path) -> None:
    """They are not drawn against each other."""
    arms = '[ledger]\npath = "l"\n[[arms]]\nname = "a"\n[[arms]]\nname = "b"\nmodels = ["m"]\n'

    assert ["different models" in said for said in warnings_of(settings(tmp_path, arms))] == [True]


def test_an_arm_whose_labels_no_backend_has_is_warned_of(tmp_path: Path) -> None:
    """It would be served where others are: a slip of the pen must not look like "no effect"."""
    arms = '[ledger]\npath = "l"\n[[arms]]\nname = "a"\nlabels = {p = "fp8"}\n'
    backend = '[[backends]]\nurl = "http://b"\nlabels = {p = "FP8"}\n'

    assert ["arm 'a': no" in said for said in warnings_of(settings(tmp_path, arms + backend))] == [
        True
    ]
    assert warnings_of(settings(tmp_path, arms + backend.replace("FP8", "fp8"))) == []


def test_an_open_admin_port_with_a_key_is_fine(tmp_path: Path) -> None:
    """In a file too."""
    file = tmp_path / "secret"
    file.write_text("k\n")
    made = settings(tmp_path, f'[server]\nadmin_host = "0.0.0.0"\nadmin_key_file = "{file}"')

    assert made.server.admin_key == "k"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[routing]\nsession_headers = ["two words"]', "session_headers: 'two words'"),
        ('[[masks]]\npattern = "("', r"masks\[0\].pattern: not a pattern"),
        ('[[masks]]\npatern = "a"', r"masks\[0\].patern; did you mean"),
        ('[discovery]\ndns = "http://vllm"', "HOST:PORT"),
        ('[discovery]\ndns = "https://vllm:8000"', "http only"),
        ('[discovery]\ndns = "vllm:8000"', "discovery.dns: expected"),
        ('[discovery]\ndns = "http://vllm:8000/v1"', "only scheme"),
        ('[discovery]\napi_key = "env:NO_SUCH_NAME"', "discovery.api_key: .* is not set"),
        ("[discovery]\ninterval_s = 0", "discovery.interval_s"),
    ],
)
def test_hints_masks_and_discovery_are_checked(tmp_path: Path, text: str, reason: str) -> None:
    """Before anything starts; the key is named."""
    with pytest.raises(SettingsError, match=reason):
        settings(tmp_path, text)


def test_the_key_of_discovered_backends_may_be_in_the_environment(tmp_path: Path) -> None:
    """As that of any backend; an address of six groups is one host."""
    text = '[discovery]\ndns = "http://[::1]:8000"\napi_key = "env:ENGINE_KEY"'

    assert settings(tmp_path, text, ENGINE_KEY="k").discovery.api_key == "k"
