"""What others have at a backend: told, summed, and forgotten when they fall silent."""

from __future__ import annotations

from prefold.backends.backend import Load
from prefold.proxy.replicas.loads import Elsewhere, ReplicaLoad


def loads(*names: str) -> dict[str, ReplicaLoad]:
    return {name: ReplicaLoad(Load()) for name in names}


def seen(load: ReplicaLoad) -> tuple[int, int]:
    return load.in_flight, load.queued_tokens


def test_the_load_of_all_is_seen_and_the_own_is_told() -> None:
    """What was under way when the load became a shared one is kept."""
    before = Load()
    before.add(2, 300)
    load = ReplicaLoad(before)
    load.elsewhere(5, 1000)
    load.add(-1, -100)

    assert seen(load) == (6, 1200)
    assert (load.here, load.queued_here) == (1, 200)


def test_replicas_are_summed_and_the_last_word_of_each_counts() -> None:
    """What is not named any more is nothing."""
    elsewhere, mine = Elsewhere(), loads("a", "b")
    elsewhere.told(1, {"a": (1, 10), "b": (2, 20)}, now=0.0)
    elsewhere.told(2, {"a": (3, 30)}, now=0.0)
    elsewhere.apply(mine, now=0.0)
    assert [seen(load) for load in mine.values()] == [(4, 40), (2, 20)]

    elsewhere.told(1, {"a": (1, 0)}, now=1.0)
    elsewhere.apply(mine, now=1.0)
    assert [seen(load) for load in mine.values()] == [(4, 30), (0, 0)]


def test_the_share_of_a_silent_replica_expires() -> None:
    """And counts again when it speaks."""
    elsewhere, mine = Elsewhere(live_s=3.0), loads("a")
    elsewhere.told(1, {"a": (1, 10)}, now=0.0)
    elsewhere.told(2, {"a": (3, 30)}, now=2.0)
    elsewhere.apply(mine, now=3.5)
    assert seen(mine["a"]) == (3, 30)
    assert len(elsewhere) == 1

    elsewhere.apply(mine, now=6.0)
    assert seen(mine["a"]) == (0, 0)
    elsewhere.told(1, {"a": (1, 10)}, now=7.0)
    elsewhere.apply(mine, now=7.0)
    assert seen(mine["a"]) == (1, 10)


def test_a_backend_that_was_removed_is_left_with_nothing_of_others() -> None:
    """Its last requests here end; one of the same name that comes later is another."""
    elsewhere, mine = Elsewhere(), loads("a")
    old = mine["a"]
    old.add(1, 0)
    elsewhere.told(1, {"a": (4, 40)}, now=0.0)
    elsewhere.apply(mine, now=0.0)
    elsewhere.apply({}, now=0.1)
    assert seen(old) == (1, 0)

    again = loads("a")
    elsewhere.apply(again, now=0.2)
    assert seen(again["a"]) == (4, 40)
    assert seen(old) == (1, 0)
