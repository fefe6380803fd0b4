"""`data_parallel`: one table of settings, a backend for each of its server's KV caches."""

from pathlib import Path

import pytest

from prefold.backends.kv_events.subscriber import Source
from prefold.proxy.errors import SettingsError
from prefold.proxy.reload import backend_of, changes
from prefold.proxy.settings import Settings
from prefold.proxy.settings_file import load

TWO = '[[backends]]\nurl = "http://a:8000"\nname = "dp"\ndata_parallel = 2\n'


def settings(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "prefold.toml"
    path.write_text(text, encoding="utf-8")
    return load(path, env={})


def test_each_rank_is_a_backend_of_its_own(tmp_path: Path) -> None:
    """Same server, own header; the key is sent to both."""
    made = settings(tmp_path, TWO + 'api_key = "k"\nkv_events = "auto"\n')
    backends = [backend_of(backend, made.health) for backend in made.backends]

    assert [(one.name, one.url, one.rank) for one in backends] == [
        ("dp#0", "http://a:8000", 0),
        ("dp#1", "http://a:8000", 1),
    ]
    assert [one.headers for one in backends] == [
        {"Authorization": "Bearer k", "X-data-parallel-rank": "0"},
        {"Authorization": "Bearer k", "X-data-parallel-rank": "1"},
    ]
    assert [one.event_source for one in backends] == ["ask", "ask"]


def test_a_backend_that_is_no_rank_sends_no_rank(tmp_path: Path) -> None:
    """The engine chooses."""
    made = settings(tmp_path, '[[backends]]\nurl = "http://a:8000"\n')
    [backend] = [backend_of(backend, made.health) for backend in made.backends]

    assert (backend.rank, backend.headers) == (None, {})


def test_ports_of_events_are_counted_up_from_the_first_rank(tmp_path: Path) -> None:
    """As engines do with the ports that they are given."""
    endpoints = 'kv_events = "tcp://a:5557"\nkv_replay = "tcp://[::1]:5657"\nkv_topic = "t"\n'
    made = settings(tmp_path, TWO + endpoints)

    assert [backend_of(backend, made.health).event_source for backend in made.backends] == [
        Source(endpoint="tcp://a:5557", replay_endpoint="tcp://[::1]:5657", topic="t"),
        Source(endpoint="tcp://a:5558", replay_endpoint="tcp://[::1]:5658", topic="t"),
    ]


def test_one_rank_of_many_may_stand_alone(tmp_path: Path) -> None:
    """With settings of its own."""
    made = settings(tmp_path, '[[backends]]\nurl = "http://a:8000"\ndata_parallel_rank = 3\n')
    [backend] = [backend_of(backend, made.health) for backend in made.backends]

    assert (backend.name, backend.rank) == ("a:8000", 3)


def test_more_ranks_are_added_by_a_reload(tmp_path: Path) -> None:
    """Those that there were go on."""
    more = settings(tmp_path, TWO.replace("= 2", "= 3"))
    difference = changes(settings(tmp_path, TWO), more)

    assert [backend.name for backend in difference.add] == ["dp#2"]
    assert difference.remove == ()


def test_a_rank_may_be_the_backend_of_state(tmp_path: Path) -> None:
    """By its name."""
    made = settings(tmp_path, '[routing]\npinned_backend = "dp#1"\n' + TWO)

    assert made.routing.pinned_backend == "dp#1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            TWO + 'engine = "llama.cpp"',
            r"\[0\].data_parallel: llama.cpp takes no request for a rank",
        ),
        (TWO + 'engine = "tensorrt-llm"', r"\[0\].data_parallel: tensorrt-llm takes no request"),
        (TWO + "data_parallel_rank = 0", r"backends\[0\].data_parallel: data_parallel_rank says"),
        (
            '[[backends]]\nurl = "http://a"\nengine = "openai"\ndata_parallel_rank = 0',
            r"backends\[0\].data_parallel_rank: openai takes no request",
        ),
        (TWO + 'kv_events = "tcp://*:5557"', r"backends\[0\].kv_events: each rank has its own"),
        (TWO + '[[backends]]\nurl = "http://b"\nname = "dp#1"', "'dp#1' is used twice"),
        (TWO.replace("= 2", "= 0"), "data_parallel"),
        ('[routing]\npinned_backend = "dp"\n' + TWO, "no backend is named 'dp'"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """With the key and the reason."""
    with pytest.raises(SettingsError, match=said):
        settings(tmp_path, text)
