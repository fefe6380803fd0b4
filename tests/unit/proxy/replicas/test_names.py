"""Names of backends, here and in Redis; restarts that several tell; keys in place of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from prefold.backends.backend import Load
from prefold.prefix_index.deltas import Corrected, Delta, Finished, Placed
from prefold.prefix_index.index import RIGHT
from prefold.prefix_index.prefix import Prefix
from prefold.prefix_index.slots import SlotCache
from prefold.proxy.replicas.index import BLOCK_TOKENS, KeyedIndex
from prefold.proxy.replicas.loads import ReplicaLoad
from prefold.proxy.replicas.messages import Loads, Told
from prefold.proxy.replicas.names import AGAIN_S, Emptyings, Names
from prefold.proxy.replicas.pins import ReplicaPins
from prefold.proxy.replicas.seal import Seal
from prefold.proxy.workers.messages import Emptied, Forgot, Pinned

SECRET = b"a secret of some length"


@dataclass(frozen=True)
class Named:
    name: str
    url: str
    rank: int | None = None


def names(*backends: Named) -> Names:
    made = Names(Seal(SECRET))
    made.learn(backends)
    return made


@pytest.mark.parametrize(
    "message",
    [
        Placed("mine", 1, 16, 16, 0, b"12345678"),
        Finished("mine", 1, False),
        Corrected("mine", 1, 32, 5),
        Emptied("mine"),
        Pinned(b"digest", "mine"),
        Forgot(),
    ],
)
def test_replicas_may_call_a_backend_as_they_like(message: Told) -> None:
    """What one says of it the other one hears under its own name for that URL."""
    ours = names(Named("mine", "http://a:1"), Named("x", "http://a:2"))
    theirs = names(Named("mine", "http://a:2"), Named("theirs", "http://a:1"))
    outward = ours.outward(message)
    assert outward is not None
    heard = theirs.inward(outward)

    assert type(heard) is type(message)
    assert getattr(heard, "backend", "theirs") == "theirs"
    assert getattr(outward, "backend", "") not in ("mine", "theirs")
    assert ours.inward(outward) == message


def test_of_a_backend_that_is_not_here_nothing_is_told_or_heard() -> None:
    """It was removed meanwhile, or never was."""
    ours = names(Named("mine", "http://a:1"))
    outward = ours.outward(Emptied("mine"))
    assert outward is not None

    assert ours.outward(Emptied("another")) is None
    assert names(Named("b", "http://a:9")).inward(outward) is None
    ours.learn([])
    assert ours.inward(outward) is None


def test_loads_are_told_where_there_are_some() -> None:
    """By their digests; heard by their names."""
    ours = names(Named("mine", "http://a:1"), Named("idle", "http://a:2"))
    busy, idle = ReplicaLoad(Load()), ReplicaLoad(Load())
    busy.add(2, 300)
    idle.elsewhere(7, 7)
    told = ours.loads({"mine": busy, "idle": idle})
    theirs = names(Named("one", "http://a:1"))

    assert theirs.shares(told) == {"one": (2, 300)}
    assert len(told.backends) == 1
    assert theirs.shares(Loads(())) == {}


def test_one_restart_told_by_many_is_news_once() -> None:
    """Another one, later, is news again."""
    emptyings = Emptyings()
    assert emptyings.news("b", 0.0)
    assert not emptyings.news("b", 5.0)
    assert emptyings.news("other", 5.0)
    assert emptyings.news("b", AGAIN_S + 1.0)
    emptyings.note("b", 100.0)
    assert not emptyings.news("b", 101.0)


def keyed(slots: int = 2) -> tuple[KeyedIndex, list[Delta]]:
    told: list[Delta] = []
    index = KeyedIndex(lambda make: told.append(make()), lambda backend: None)
    index.set_cache("b", SlotCache(slots=slots, context_tokens=4096))
    return index, told


def prompt(tokens: int, *, seed: int = 7) -> Prefix:
    return Prefix.of_tokens(np.arange(1000, 1000 + tokens, dtype=np.uint32), seed=seed)


def test_of_a_cache_that_compares_tokens_only_keys_of_blocks_are_told() -> None:
    """No token id is in what leaves, and another index learns from it, to the block."""
    index, told = keyed()
    placement = index.begin("b", prompt(100), 0.0)
    assert placement is not None
    index.finish("b", placement, 1.0)
    other, _ = keyed()
    for delta in told:
        other.take_in(1, delta, 2.0)

    [placed] = [delta for delta in told if isinstance(delta, Placed)]
    assert (placed.unit_tokens, placed.seed, len(placed.units)) == (BLOCK_TOKENS, 0, 6 * 8)
    assert np.arange(1000, 1004, dtype=np.uint32).tobytes() not in placed.units
    for known in (index, other):
        assert known.match(prompt(200), "b").cached_tokens == 96
        assert known.match(prompt(200, seed=8), "b").cached_tokens == 0


def test_what_an_engine_reports_beyond_the_last_block_is_no_correction() -> None:
    """To the token it found more than keys can tell; less is a correction, and told."""
    index, told = keyed()
    first = index.begin("b", prompt(100), 0.0)
    assert first is not None
    index.finish("b", first, 1.0)
    again = index.begin("b", prompt(150), 2.0)
    assert again is not None
    assert again.cached_tokens == 96

    assert index.correct("b", again, 100, 3.0) is RIGHT
    assert not any(isinstance(delta, Corrected) for delta in told)
    assert index.correct("b", again, 0, 3.0) is not RIGHT
    assert [delta for delta in told if isinstance(delta, Corrected)] == [Corrected("b", 2, 0, 0)]


def test_a_prompt_of_which_only_the_beginning_is_known_is_matched_by_it() -> None:
    """As long prompts are at first."""
    index, _ = keyed()
    placement = index.begin("b", prompt(64), 0.0)
    assert placement is not None
    index.finish("b", placement, 1.0)
    beginning = Prefix.of_tokens(np.arange(1000, 1040, dtype=np.uint32), seed=7, length=200)

    assert index.match(beginning, "b").cached_tokens == 32


def test_a_response_of_another_replica_is_found_by_who_has_its_id_and_tenant() -> None:
    """What this one made itself it knows without a digest, and tells once."""
    told: list[tuple[str, str, str]] = []
    seal = Seal(SECRET)
    pins = ReplicaPins(lambda *made: told.append(made), seal.response)
    pins.learn("t", "own", "b0")
    pins.learn("t", "own", "b0")
    assert told == [("t", "own", "b0")]
    assert pins.find("t", "other") is None
    pins.of_others.learn(Seal(SECRET).response("t", "other"), "b1")

    assert (pins.find("t", "other"), pins.find("t", "own")) == ("b1", "b0")
    assert pins.find("u", "other") is None
    assert len(told) == 1
