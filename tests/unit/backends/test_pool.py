"""Candidates and leases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.backends.backend import Backend, Lease
from prefold.backends.engine import EngineFacts, ServedModel
from prefold.backends.health import HealthRules, Outcome
from prefold.backends.pool import BackendPool
from prefold.backends.rate import PrefillRate


def backend(name: str, *models: str, room: int = 100) -> Backend:
    made = Backend(
        name=name,
        url=f"http://{name}",
        headers={},
        engine=None,
        rules=HealthRules(failures_to_eject=1),
        max_in_flight=room,
    )
    made.facts = EngineFacts(models=tuple(ServedModel(id=model) for model in models))
    made.health.probed(0.0)
    return made


def names(backends: list[Backend]) -> list[str]:
    return [backend.name for backend in backends]


def eject(one: Backend) -> None:
    Lease(one, 0, 0.0).release(Outcome.FAILURE, 0.0)


def test_only_backends_that_list_the_model_are_candidates() -> None:
    """Routing is only among those."""
    pool = BackendPool([backend("a", "m"), backend("b", "m", "n"), backend("c", "n")], 1000.0)

    assert names(pool.candidates("m", 0.0)) == ["a", "b"]
    assert names(pool.candidates("n", 0.0, excluded=["b"])) == ["c"]
    assert names(pool.candidates(None, 0.0)) == ["a", "b", "c"]
    assert list(pool.models()) == ["m", "n"]


@pytest.mark.parametrize(
    ("ejected", "candidates", "fallback"),
    [
        ("", "abcd", ""),
        ("a", "bcd", ""),
        ("ab", "cd", ""),
        ("abc", "d", "abc"),
        ("abcd", "abcd", "abcd"),
    ],
)
def test_when_more_than_half_are_ejected_they_are_what_is_left_before_refusing(
    ejected: str, candidates: str, fallback: str
) -> None:
    """Panic mode: a wrong verdict on most must not become an outage; those that work come first."""
    backends = [backend(name, "m", room=1) for name in "abcd"]
    pool = BackendPool([*backends, backend("other", "n")], 1000.0)
    for one in backends:
        if one.name in ejected:
            eject(one)
    assert names(pool.candidates("m", 0.0)) == list(candidates)
    assert names(pool.candidates("n", 0.0)) == ["other"]
    for one in backends:
        if one.name not in ejected:
            Lease(one, 0, 0.0)  # now it is full

    assert names(pool.candidates("m", 0.0)) == list(fallback)


def test_in_panic_a_second_attempt_goes_to_an_ejected_one_only_if_no_other_is_left() -> None:
    """It failed at `a`, or at the last one that works."""
    backends = [backend(name, "m") for name in "abcd"]
    pool = BackendPool(backends, 1000.0)
    for one in backends[:3]:
        eject(one)

    assert names(pool.candidates("m", 0.0, excluded=["a"])) == ["d"]
    assert names(pool.candidates("m", 0.0, excluded=["d"])) == ["a", "b", "c"]


def test_panic_is_a_matter_of_those_that_answer_their_probes() -> None:
    """And not of those that are excluded for one request."""
    backends = [backend(name, "m") for name in "abc"]
    pool = BackendPool(backends, 1000.0)
    eject(backends[0])
    assert names(pool.candidates("m", 0.0, excluded=["b"])) == ["c"]
    assert names(pool.candidates("m", 0.0, excluded=["b", "c"])) == []
    backends[1].health.down()
    backends[2].health.down()

    assert names(pool.candidates("m", 0.0)) == ["a"]


def test_a_backend_without_a_free_place_is_no_candidate_but_would_serve() -> None:
    """That is the difference between waiting and refusing."""
    one = backend("a", "m", room=2)
    pool = BackendPool([one], 1000.0)
    first, _ = Lease(one, 0, 0.0), Lease(one, 0, 0.0)
    assert names(pool.candidates("m", 0.0)) == []
    assert pool.serving("m", 0.0)
    assert not pool.serving("m", 0.0, excluded=["a"])
    assert not pool.serving("n", 0.0)
    first.release(Outcome.SUCCESS, 0.0)

    assert names(pool.candidates("m", 0.0)) == ["a"]


def test_a_removed_backend_takes_no_requests_and_ends_those_it_has() -> None:
    """Its leases are released as any others; one of the same name may take its place."""
    old = backend("a", "m")
    pool = BackendPool([old], 1000.0)
    lease = Lease(old, 10, 0.0)
    assert pool.remove("a") is old
    assert pool.candidates("m", 0.0) == []
    assert "a" not in pool
    new = backend("a", "m")
    pool.add(new)
    assert pool.candidates("m", 0.0) == [new]
    lease.release(Outcome.SUCCESS, 0.0)

    assert (old.in_flight, old.queued_tokens, new.in_flight) == (0, 0, 0)
    with pytest.raises(ValueError, match="already"):
        pool.add(backend("a", "m"))


def test_those_who_wait_are_told_of_every_change() -> None:
    """A release, a backend more, a backend less."""
    told = []
    one = backend("a", "m")
    pool = BackendPool([one], 1000.0)
    pool.notify(lambda: told.append(len(list(pool))))
    Lease(one, 0, 0.0).release(Outcome.SUCCESS, 0.0)
    assert told == [1]
    pool.add(backend("b", "m"))
    pool["b"].on_change()
    assert told == [1, 2]
    pool.remove("b")

    assert told == [1, 2, 1]


def test_a_backend_that_returns_is_taken_for_slower_than_it_is() -> None:
    """Routing is not to flood it; its learned rate stays what it is."""
    one = backend("a", "m")
    pool = BackendPool([one], 1000.0)
    assert pool.routing_rates([one], 0.0) == [1000.0]
    one.health.down()
    one.health.probed(100.0)

    assert pool.routing_rates([one], 100.0) == [pytest.approx(100.0)]
    assert pool.routing_rates([one], 110.0) == pool.prefill_rates([one]) == [1000.0]


def test_unreachable_backends_are_never_candidates() -> None:
    """Not even in panic."""
    one = backend("a", "m")
    one.health.down()

    assert BackendPool([one], 1000.0).candidates("m", 0.0) == []


def test_a_lease_counts_from_selection_and_is_released_once() -> None:
    """In-flight and queued tokens return to zero whatever is called how often."""
    one = backend("a", "m")
    lease = Lease(one, 500, 0.0)
    assert (one.in_flight, one.queued_tokens) == (1, 500)
    lease.prefilled(0.0)
    lease.prefilled(0.0)
    assert (one.in_flight, one.queued_tokens) == (1, 0)
    lease.release(Outcome.SUCCESS, 0.0)
    lease.release(Outcome.FAILURE, 0.0)

    assert (one.in_flight, one.queued_tokens) == (0, 0)
    assert one.health.usable(0.0)


def test_a_backend_that_was_not_observed_is_taken_for_an_average_one() -> None:
    """Being new must neither attract nor repel; with no rate at all, the configured guess."""
    old, new = backend("a", "m"), backend("b", "m")
    pool = BackendPool([old, new], 5000.0)
    assert pool.prefill_rates([old, new]) == [5000.0, 5000.0]
    old.rate.observe(1000, 10.0)

    assert pool.prefill_rates([old, new]) == [pytest.approx(100.0)] * 2


def test_rates_of_several_come_in_the_order_given_and_the_mean_is_of_the_whole_fleet() -> None:
    """Of those that were observed, also where they are no candidates."""
    fast, slow, new = (backend(name, "m") for name in "abc")
    pool = BackendPool([fast, slow, new], 5000.0)
    fast.rate.observe(1000, 1.0)
    slow.rate.observe(1000, 5.0)

    assert pool.prefill_rates([new, slow]) == [pytest.approx(600.0), pytest.approx(200.0)]


def test_a_backend_counts_as_fast_as_the_others_until_its_times_say_otherwise() -> None:
    """One lucky time makes nobody attract everything; a difference that lasts is believed."""
    first, second, slow = (backend(name, "m") for name in "abc")
    pool = BackendPool([first, second, slow], 5000.0)
    for one, seconds in ((first, 1.0), (second, 0.7), (slow, 5.0)):
        one.rate.observe(1000, seconds)

    assert pool.routing_rates([first, second, slow], 0.0) == [pytest.approx(1000.0)] * 3
    assert pool.routing_rates([], 0.0) == []
    for turn in range(8):
        for one, per_token in ((first, 0.001), (second, 0.0011), (slow, 0.005)):
            tokens = 500 + 100 * turn
            one.rate.observe(tokens, tokens * per_token * (0.8 if turn % 2 else 1.2))
    equal, also, slower = pool.routing_rates([first, second, slow], 0.0)

    assert equal == also
    assert slower < equal / 3


class CountedRate(PrefillRate):
    """Counts how often it is read, over all of them."""

    def __init__(self, reads: list[None]) -> None:
        super().__init__()
        self._reads = reads

    @property
    def tokens_per_s(self) -> float | None:
        self._reads.append(None)
        return super().tokens_per_s


def test_rates_of_a_large_fleet_cost_a_look_at_each() -> None:
    """Not a look at everyone for each: at most twice as many reads as backends."""
    reads: list[None] = []
    fleet = [backend(f"backend-{number}", "m") for number in range(256)]
    for one in fleet:
        one.rate = CountedRate(reads)

    BackendPool(fleet, 5000.0).routing_rates(fleet, 0.0)

    assert 256 <= len(reads) <= 512


@given(st.lists(st.tuples(st.sampled_from(["lease", "prefilled", "release"]), st.integers(0, 9))))
def test_in_flight_is_exact_in_whatever_order_requests_end(steps: list[tuple[str, int]]) -> None:
    """Against a plain count of those that are open; queued tokens are those before their first."""
    one = backend("a", "m")
    leases: list[Lease] = []
    queued: dict[int, int] = {}
    for kind, number in steps:
        if kind == "lease":
            leases.append(Lease(one, number, 0.0))
            queued[len(leases) - 1] = number
        elif leases:
            which = number % len(leases)
            if kind == "prefilled":
                leases[which].prefilled(0.0)
                if which in queued:
                    queued[which] = 0
            else:
                leases[which].release(Outcome.FAILURE, 0.0)
                queued.pop(which, None)

        assert one.in_flight == len(queued)
        assert one.queued_tokens == sum(queued.values())
