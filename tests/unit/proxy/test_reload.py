"""Backends that come and go: the difference between settings, and what is done about it."""

import dataclasses
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given as generated
from hypothesis import strategies as st

from prefold.backends.backend import Lease
from prefold.backends.client import Client
from prefold.backends.health import Outcome
from prefold.backends.http1 import Limits
from prefold.backends.kv_events.subscriber import Source
from prefold.backends.monitor import Monitor, Watches
from prefold.backends.pool import BackendPool
from prefold.prefix_index.block_lru import BlockLru
from prefold.prefix_index.index import PrefixIndex
from prefold.proxy.errors import SettingsError
from prefold.proxy.kv_events import Feeds
from prefold.proxy.reload import Changes, Reloader, backend_of, changes
from prefold.proxy.settings import (
    Arm,
    Backend,
    Compression,
    Experiment,
    Health,
    Routing,
    Server,
    Settings,
)
from prefold.proxy.workers.reload import TellingReloader

NOWHERE = "http://127.0.0.1:9"


def named(name: str, **other: object) -> Backend:
    return dataclasses.replace(Backend(url=NOWHERE, name=name), **other)  # type: ignore[arg-type]


def with_backends(*backends: Backend) -> Settings:
    return Settings(backends=backends)


# The difference.


@pytest.mark.parametrize(
    "other",
    [
        {"url": "http://127.0.0.1:10"},
        {"engine": "vllm"},
        {"api_key": "another"},
        {"pass_client_key": True},
        {"ca_file": "/ca.pem"},
        {"kv_events": "auto"},
        {"kv_topic": "t"},
    ],
)
def test_a_backend_that_became_another_is_removed_and_added(other: dict[str, object]) -> None:
    """What was learned of the old one need not be true of it."""
    new = named("a", **other)

    assert changes(with_backends(named("a")), with_backends(new)) == Changes(
        add=(new,), remove=("a",)
    )


def test_how_much_a_backend_takes_may_change_in_place() -> None:
    """It is the same server."""
    new = named("a", max_in_flight=7)

    assert changes(with_backends(named("a")), with_backends(new)) == Changes(keep=(new,))


def test_other_settings_are_named_and_never_shown() -> None:
    """By their dotted names."""
    old = Settings(server=Server(port=1), routing=Routing(secret="one"))
    new = Settings(server=Server(port=2), routing=Routing(secret="two", policy="least_load"))

    assert changes(old, new).restart == ("server.port", "routing.policy", "routing.secret")
    assert changes(old, old) == Changes()


FLEETS = st.lists(
    st.builds(
        named,
        st.sampled_from("abcd"),
        api_key=st.sampled_from(["", "k"]),
        max_in_flight=st.sampled_from([1, 2]),
    ),
    unique_by=lambda backend: backend.name,
    max_size=4,
)


@generated(FLEETS, FLEETS)
def test_the_old_fleet_with_the_changes_is_the_new_fleet(
    old: list[Backend], new: list[Backend]
) -> None:
    """Against a plain dictionary; nothing that could stay is taken down."""
    found = changes(with_backends(*old), with_backends(*new))
    fleet = {backend.name: backend for backend in old}
    for name in found.remove:
        assert fleet.pop(name) not in new
    fleet |= {backend.name: backend for backend in (*found.keep, *found.add)}

    assert fleet == {backend.name: backend for backend in new}


# What is done.


class Scene:
    """Real parts; nothing listens where the backends are said to be."""

    def __init__(self, watches: Watches, *backends: Backend, feeds: Feeds | None = None) -> None:
        self.next: Settings | SettingsError = SettingsError("no settings yet")
        self.index = PrefixIndex()
        self.pool = BackendPool([backend_of(one, Health()) for one in backends], 1000.0)
        for one in self.pool:
            watches.start(one)
            self.index.set_cache(one.name, BlockLru(capacity_tokens=160, block_tokens=16))
        self.reloader = Reloader(
            settings=with_backends(*backends),
            load=self.load,
            pool=self.pool,
            index=self.index,
            watches=watches,
            feeds=feeds,
        )

    def load(self) -> Settings:
        if isinstance(self.next, SettingsError):
            raise self.next
        return self.next

    @property
    def names(self) -> list[str]:
        assert {one.name for one in self.pool} == {
            one.name for one in self.reloader.settings.backends
        }
        return [one.name for one in self.pool]


@pytest.fixture
async def watches() -> AsyncIterator[Watches]:
    async def ready(*arguments: object) -> bool:
        return True

    async with Client(Limits()) as client:
        monitor = Monitor(client=client, interval_s=60.0, timeout_s=1.0, on_ready=ready)
        async with Watches(monitor) as watches:
            yield watches


async def test_the_fleet_becomes_what_the_settings_say(watches: Watches) -> None:
    """Kept backends are the same objects, with what was learned of them; changed ones are new."""
    scene = Scene(watches, named("a"), named("b"), named("c"))
    kept, changed = scene.pool["a"], scene.pool["b"]
    scene.next = with_backends(named("a", max_in_flight=3), named("b", api_key="k"), named("d"))
    done = scene.reloader.reload()

    assert ([one.name for one in done.add], done.remove) == (["b", "d"], ("b", "c"))
    assert scene.names == ["a", "b", "d"]
    assert scene.pool["a"] is kept
    assert kept.max_in_flight == 3
    assert scene.pool["b"] is not changed
    assert scene.pool["b"].headers == {"Authorization": "Bearer k"}
    assert repr(scene.index) == "<PrefixIndex tokens held {a: 0/160}>"


async def test_events_are_followed_only_of_backends_that_are_as_they_were(
    watches: Watches,
) -> None:
    """The feed of one that is gone, or whose events are elsewhere, ends at once; the others' go
    on."""
    told: list[str] = []
    endpoint = "tcp://127.0.0.1:9"
    async with Feeds(secret=b"s", on_change=lambda name, _: told.append(name)) as feeds:
        backends = [named(name, kv_events=endpoint) for name in "abc"]
        scene = Scene(watches, *backends, feeds=feeds)
        for one in scene.pool:
            source = one.event_source
            assert isinstance(source, Source)
            feeds.open(one.name, source, block_tokens=16, capacity_tokens=160)
        kept = feeds.get("a")
        scene.next = with_backends(backends[0], named("b", kv_events=endpoint, kv_topic="t"))
        scene.reloader.reload()

        assert kept is not None
        assert kept.alive
        assert [feeds.get(name) for name in "abc"] == [kept, None, None]
        assert scene.pool["b"].event_source == Source(endpoint=endpoint, topic="t")
        scene.reloader.remove("a")
        assert feeds.get("a") is None
    assert not kept.alive
    assert told == []


async def test_a_lease_on_a_removed_backend_ends_as_any_other(watches: Watches) -> None:
    """Its stream goes on; it only gets no further one."""
    scene = Scene(watches, named("a"))
    backend = scene.pool["a"]
    lease = Lease(backend, 10, 0.0)
    scene.reloader.remove("a")
    assert backend.in_flight == 1
    lease.release(Outcome.SUCCESS, 1.0)

    assert (backend.in_flight, backend.queued_tokens) == (0, 0)


async def test_bad_settings_change_nothing(
    watches: Watches, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither those that cannot be read nor those that only fail when a backend is made of them."""
    scene = Scene(watches, named("a"))
    with pytest.raises(SettingsError, match="no settings yet"):
        scene.reloader.reload()
    scene.next = with_backends(named("b"), named("c", url="https://x", ca_file="/nowhere.pem"))
    with pytest.raises(SettingsError, match="ca_file"):
        scene.reloader.reload()
    scene.reloader.reload_or_log()

    assert scene.names == ["a"]
    assert "the settings were not taken over: ca_file" in caplog.text


async def test_settings_that_take_a_restart_are_logged_by_name(
    watches: Watches, caplog: pytest.LogCaptureFixture
) -> None:
    """They stay as they are."""
    scene = Scene(watches, named("a"))
    scene.next = dataclasses.replace(with_backends(named("a")), server=Server(admin_key="hidden"))
    with caplog.at_level(logging.INFO):
        done = scene.reloader.reload()

    assert done.restart == ("server.admin_key",)
    assert "take a restart: server.admin_key" in caplog.text
    assert "hidden" not in caplog.text
    assert scene.reloader.settings.server.admin_key == ""


async def test_one_backend_more_and_one_less(watches: Watches) -> None:
    """Its name defaults as in the settings; a reload undoes both."""
    scene = Scene(watches, named("a"))
    added = scene.reloader.add(Backend(url="http://127.0.0.1:19/", max_in_flight=5))
    assert scene.names == ["a", "127.0.0.1:19"]
    assert (added.url, added.max_in_flight) == ("http://127.0.0.1:19", 5)
    scene.reloader.remove("a")
    assert scene.names == ["127.0.0.1:19"]
    scene.next = with_backends(named("a"))
    scene.reloader.reload()

    assert scene.names == ["a"]
    with pytest.raises(KeyError):
        scene.reloader.remove("127.0.0.1:19")


@pytest.mark.parametrize(
    ("backend", "reason"),
    [
        (named("a"), "used twice"),
        (Backend(url="ftp://x"), "expected http"),
        (Backend(url="http://x/v1"), "only scheme"),
        (Backend(url="http://x", kv_events="on"), "tcp://HOST:PORT"),
        (Backend(url="http://x", api_key="two\r\nlines"), "printable"),
        (Backend(url="http://x", api_key="env:HOME"), "not set"),
        (Backend(url="http://x", api_key_file="/etc/passwd"), "named in the settings only"),
        (Backend(url="https://x", ca_file="/etc/passwd"), "named in the settings only"),
    ],
)
async def test_a_backend_that_is_wrong_is_not_added(
    watches: Watches, backend: Backend, reason: str
) -> None:
    """Nor does it read this machine's files and environment."""
    scene = Scene(watches, named("a"))
    with pytest.raises(SettingsError, match=reason):
        scene.reloader.add(backend)

    assert scene.names == ["a"]


async def test_the_backend_that_holds_state_is_not_removed(watches: Watches) -> None:
    """The settings name it."""
    scene = Scene(watches, named("a"), named("b"))
    pinned = dataclasses.replace(scene.reloader.settings, routing=Routing(pinned_backend="a"))
    scene.reloader.settings = pinned
    with pytest.raises(SettingsError, match="pinned_backend"):
        scene.reloader.remove("a")

    assert scene.names == ["a", "b"]


def test_a_backend_is_made_as_the_settings_describe_it(tmp_path: Path) -> None:
    """Rules, limits and credentials; a file of authorities that is none is refused."""
    health = Health(failures_to_eject=1, eject_s=7.0)
    one = backend_of(named("a", engine="vllm", api_key="k", pass_client_key=True), health)
    Lease(one, 0, 0.0).release(Outcome.FAILURE, 0.0)
    one.health.probed(0.0)

    assert one.engine is not None
    assert (one.engine.name, one.pass_client_key, one.ssl) == ("vllm", True, None)
    assert one.event_source is None
    assert backend_of(named("a", kv_events="auto"), health).event_source == "ask"
    assert not one.health.usable(6.9)
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(SettingsError, match="no PEM"):
        backend_of(named("a", url="https://x", ca_file=str(tmp_path / "ca.pem")), health)


async def test_what_is_discovered_stands_beside_what_is_named(watches: Watches) -> None:
    """Each list is replaced by itself: a reload leaves what was discovered, discovery what was
    named or added; a server in both is the named one."""
    scene = Scene(watches, named("a"))
    found = [named("x", url="http://127.0.0.1:11"), named("y", url="http://127.0.0.1:12")]
    scene.reloader.discovered(found)
    kept = scene.pool["x"]
    assert scene.names == ["a", "x", "y"]
    scene.reloader.discovered([*found[:1], named("z", url=NOWHERE)])
    assert scene.names == ["a", "x"]
    scene.reloader.add(named("b", url="http://127.0.0.1:13"))
    scene.next = with_backends(named("a"), named("c", url="http://127.0.0.1:14"))
    scene.reloader.reload()

    assert scene.names == ["a", "x", "c"]
    assert scene.pool["x"] is kept
    with pytest.raises(SettingsError, match="discovered"):
        scene.reloader.remove("x")
    scene.reloader.discovered([])
    assert scene.names == ["a", "c"]
    with pytest.raises(KeyError):
        scene.reloader.remove("x")


async def test_a_discovered_list_that_is_wrong_changes_nothing(watches: Watches) -> None:
    """Nor what a reload would put beside the named ones."""
    scene = Scene(watches, named("a"))
    scene.reloader.discovered([named("x", url="http://127.0.0.1:11")])
    with pytest.raises(SettingsError, match="ca_file"):
        scene.reloader.discovered([named("y", url="https://y", ca_file="/nowhere.pem")])
    scene.next = with_backends(named("a"))
    scene.reloader.reload()

    assert scene.names == ["a", "x"]


async def test_arms_are_taken_over_and_weighed_while_running(watches: Watches) -> None:
    """Whoever draws them is told when they change, and only then; other weights last until the
    settings are read again."""
    told: list[list[tuple[str, float]]] = []
    one, two = Arm(name="a"), Arm(name="b", weight=0.5)
    reloader = Reloader(
        settings=with_backends(),
        load=lambda: Settings(arms=(one, two)),
        pool=BackendPool([], 1000.0),
        index=PrefixIndex(),
        watches=watches,
        set_arms=lambda arms: told.append([(arm.name, arm.weight) for arm in arms]),
    )
    reloader.add(named("x"))
    assert reloader.reload().restart == ()
    reloader.weigh({"b": 3.0})
    for weights, error in (({"a": 0.0, "b": 0.0}, SettingsError), ({"c": 1.0}, KeyError)):
        with pytest.raises(error):
            reloader.weigh(weights)
    assert [arm.weight for arm in reloader.settings.arms] == [1.0, 3.0]
    reloader.reload()

    assert told == [
        [("a", 1.0), ("b", 0.5)],
        [("a", 1.0), ("b", 3.0)],
        [("a", 1.0), ("b", 0.5)],
    ]


async def test_labels_change_in_place(watches: Watches) -> None:
    """They are the operator's, and say nothing of what the backend holds."""
    scene = Scene(watches, named("a"))
    kept = scene.pool["a"]
    scene.next = with_backends(named("a", labels={"precision": "fp8"}))
    scene.reloader.reload()

    assert scene.pool["a"] is kept
    assert kept.labels == {"precision": "fp8"}


async def test_another_kind_of_experiment_takes_a_restart(watches: Watches) -> None:
    """Its arms too, until then: those of slices would be drawn by conversation."""
    told: list[object] = []
    before = Settings(arms=(Arm(name="a"), Arm(name="b")))
    after = Settings(
        experiment=Experiment(slice_s=600.0), arms=(Arm(name="c"), Arm(name="d", policy="random"))
    )
    reloader = Reloader(
        settings=before,
        load=lambda: after,
        pool=BackendPool([], 1000.0),
        index=PrefixIndex(),
        watches=watches,
        set_arms=told.append,
    )

    assert reloader.reload().restart == ("experiment.slice_s",)
    assert reloader.settings.arms == before.arms
    assert told == []


async def test_an_arm_that_lost_its_backends_is_told_once(
    watches: Watches, caplog: pytest.LogCaptureFixture
) -> None:
    """It is served where others are: who reads its figures must know."""
    labels = {"precision": "fp8"}
    scene = Scene(watches, named("a"), named("b", labels=labels))
    arms = (Arm(name="x", labels=labels), Arm(name="y"))
    scene.next = dataclasses.replace(
        with_backends(named("a"), named("b", labels=labels)), arms=arms
    )
    scene.reloader.reload()
    assert "no backend has its labels" not in caplog.text
    scene.reloader.remove("b")
    scene.reloader.add(named("c"))

    assert caplog.text.count("arm 'x': no backend has its labels") == 1


def test_the_first_arm_that_compresses_takes_a_restart() -> None:
    """No compressor was started; where one was, it takes none."""
    bare = Settings()
    arms = (Arm(name="a"), Arm(name="b", compression="on"))
    compressing = dataclasses.replace(bare, compression=Compression(mode="shadow"))

    assert changes(bare, dataclasses.replace(bare, arms=arms)).restart == ("arms",)
    assert changes(bare, dataclasses.replace(bare, arms=arms[:1])).restart == ()
    assert changes(compressing, dataclasses.replace(compressing, arms=arms)).restart == ()


@pytest.mark.parametrize("compresses", [True, False])
def test_some_of_compression_changes_in_place(compresses: bool) -> None:
    """Where there is a compressor; what makes it, and what decides where texts end, never does."""
    old = Settings(compression=Compression(mode="on" if compresses else "off"))
    live = Compression(mode="auto", rate=0.3, min_chars=1, margin_s=1.0, deadline_s=2.0)
    other = dataclasses.replace(live, compressor="null", api_key="k", tools=True, keep=())
    fixed = tuple(f"compression.{name}" for name in ("compressor", "api_key", "tools", "keep"))

    def restart(new: Compression) -> tuple[str, ...]:
        changed = dataclasses.replace(old, compression=new)
        return changes(old, changed, compresses=compresses).restart

    names = ("mode", "rate", "min_chars", "deadline_s", "margin_s")
    if compresses:
        assert restart(live) == ()
        assert restart(other) == fixed
    else:
        assert set(restart(live)) == {f"compression.{name}" for name in names}


async def test_how_prompts_are_compressed_is_told_to_the_workers(watches: Watches) -> None:
    """Only what may change, over what is in force."""
    told: list[Compression] = []
    reloader = TellingReloader(
        settings=Settings(compression=Compression(mode="on", compressor="null")),
        load=lambda: Settings(compression=Compression(mode="shadow", rate=0.3)),
        pool=BackendPool([], 1000.0),
        index=PrefixIndex(),
        watches=watches,
        changed=lambda settings: told.append(settings.compression),
    )
    done = reloader.reload()

    assert told == [Compression(mode="shadow", rate=0.3, compressor="null")]
    assert done.restart == ("compression.compressor",)


async def test_all_ways_to_change_the_fleet_tell_the_workers(watches: Watches) -> None:
    """With the backends there are then."""
    told: list[list[str]] = []
    reloader = TellingReloader(
        settings=with_backends(),
        load=lambda: with_backends(named("b")),
        pool=BackendPool([], 1000.0),
        index=PrefixIndex(),
        watches=watches,
        changed=lambda settings: told.append([one.name for one in settings.backends]),
    )
    reloader.add(named("a"))
    reloader.discovered([named("x", url="http://127.0.0.1:11")])
    reloader.remove("a")
    reloader.reload()

    assert told == [["a"], ["a", "x"], ["x"], ["b", "x"]]
