"""Choices with known answers."""

from __future__ import annotations

from collections import Counter

import pytest

from prefold.proxy.routing import (
    Candidate,
    Decision,
    Policy,
    Reason,
    RequestShape,
    Weights,
    among,
    choose,
    rendezvous,
    score_s,
)


def backend(
    name: str,
    *,
    cached: int = 0,
    evicted: int = 0,
    queued: int = 0,
    in_flight: int = 0,
    rate: float = 1000.0,
    waiting: int = 0,
) -> Candidate:
    return Candidate(
        name=name,
        cached_tokens=cached,
        evicted_reuse=evicted,
        queued_tokens=queued,
        in_flight=in_flight,
        prefill_tokens_per_s=rate,
        waiting=waiting,
    )


def prompt(tokens: int, affinity: int = 1) -> RequestShape:
    return RequestShape(prompt_tokens=tokens, affinity=affinity)


def by_prefix(shape: RequestShape, *candidates: Candidate) -> Decision:
    return choose(Policy.PREFIX, candidates, shape, 0, Weights())


@pytest.mark.parametrize("policy", Policy)
def test_no_candidates(policy: Policy) -> None:
    """There is nothing to choose from nothing."""
    with pytest.raises(ValueError, match="no candidates"):
        choose(policy, [], prompt(10), 0, Weights())


@pytest.mark.parametrize("policy", Policy)
def test_only_one(policy: Policy) -> None:
    """One candidate is chosen whatever its state, and says so."""
    decision = choose(policy, [backend("a", queued=10**6, cached=3)], prompt(10), 7, Weights())
    assert (decision.backend, decision.reason) == ("a", Reason.ONLY_ONE)
    assert (decision.expected_cached_tokens, decision.available_cached_tokens) == (3, 3)


def test_score_in_seconds() -> None:
    """(queued + uncached + price x evicted reuse) / rate + in flight x penalty."""
    weights = Weights(eviction_price=2.0, decode_penalty_s=0.5)
    shape = prompt(1000)
    full = backend("a", cached=400, evicted=500, queued=300, in_flight=3, rate=100.0)
    assert score_s(full, shape, weights) == pytest.approx((300 + 600 + 2 * 500) / 100 + 1.5)
    roomy = backend("a", cached=400, evicted=50, queued=300, in_flight=3, rate=100.0)
    assert score_s(roomy, shape, weights) == pytest.approx((300 + 600 + 2 * 50) / 100 + 1.5)
    crowded = backend("a", cached=1000, in_flight=3, waiting=9)
    assert score_s(crowded, shape, weights) == pytest.approx(9 * 0.5)


def test_score_of_a_copy_on_a_busy_fleet() -> None:
    """What another one holds pays the crowd's price besides, by the mean of the queues without the
    longest, in full from one as long as the prompt on."""
    weights = Weights(copy_price=1.0, crowd_price=10.0, decode_penalty_s=0.0)

    def copying(*queues: int) -> float:
        others = [backend(f"b{n}", cached=600, queued=queue) for n, queue in enumerate(queues)]
        one = backend("a", cached=200)
        return score_s(one, among(prompt(1000), [one, *others]), weights)

    own, room = 800, 400
    assert copying(5000) == pytest.approx((own + room) / 1000)
    assert copying(5000, 500) == pytest.approx((own + room + 10 * 0.25 * 400) / 1000)
    assert copying(5000, 2000) == pytest.approx((own + room + 10 * 400) / 1000)
    assert copying(9000, 9000) == pytest.approx((own + room + 10 * 400) / 1000)


def test_warm_prefix_wins() -> None:
    """Equal load: the backend that holds the prefix."""
    decision = by_prefix(prompt(8000), backend("a"), backend("b", cached=7000), backend("c"))
    assert decision == Decision(
        backend="b",
        reason=Reason.PREFIX,
        expected_cached_tokens=7000,
        available_cached_tokens=7000,
        score_s=1.0,
    )


def test_hot_prefix_spills_when_its_queue_outweighs_it() -> None:
    """A queue longer than the prefill that is saved sends the request elsewhere, which then holds
    the prefix too: that is how a hot prefix is replicated."""
    decision = by_prefix(prompt(8000), backend("hot", cached=7000, queued=25_000), backend("idle"))
    assert (decision.backend, decision.reason) == ("idle", Reason.LOAD)
    assert (decision.expected_cached_tokens, decision.available_cached_tokens) == (0, 7000)


def test_second_best_holder_is_chosen_for_its_load() -> None:
    """It holds a part, but the one that holds more was passed over: that is the load's doing."""
    decision = by_prefix(
        prompt(8000), backend("most", cached=7000, queued=20_000), backend("some", cached=3000)
    )
    assert (decision.backend, decision.reason) == ("some", Reason.LOAD)
    dearest = 1 + Weights().copy_price + Weights().crowd_price  # of each token computed twice
    decision = by_prefix(
        prompt(8000),
        backend("most", cached=7000, queued=round(1.2 * dearest * (7000 - 3000)) + 8000),
        backend("some", cached=3000),
        backend("none", queued=20_000),
    )
    assert (decision.backend, decision.reason) == ("some", Reason.LOAD)


def test_room_attracts_a_cold_prefix() -> None:
    """Of two that hold nothing of it, the one that would evict nothing."""
    decision = by_prefix(prompt(2000), backend("full", evicted=2000), backend("roomy"))
    assert (decision.backend, decision.reason) == ("roomy", Reason.LOAD)


def test_a_copy_pays_for_its_room_even_where_there_is_some() -> None:
    """A free slot attracts a new prefix, not a second copy of one that is held elsewhere, unless
    the queue there is three times as long as computing it again."""
    warm = backend("warm", cached=1900, queued=5000)
    free = backend("free")

    assert by_prefix(prompt(2000), warm, free).backend == "warm"
    busy = backend("warm", cached=1900, queued=6500)
    assert by_prefix(prompt(2000), busy, free).backend == "free"
    assert by_prefix(prompt(2000), backend("a", queued=500), free).backend == "free"


def test_price_keeps_a_prefix_where_it_is() -> None:
    """The greedy choice (price 0) copies the prefix as soon as that is faster for this request;
    with the price of what the copy evicts, it waits a little for the backend that has it."""
    warm = backend("warm", cached=6000, queued=7000)
    full = backend("full", evicted=8000)
    shape = prompt(8000)
    greedy = choose(
        Policy.PREFIX, [warm, full], shape, 0, Weights(eviction_price=0.0, copy_price=0.0)
    )
    priced = choose(Policy.PREFIX, [warm, full], shape, 0, Weights())
    assert (greedy.backend, priced.backend) == ("full", "warm")


def test_a_copy_that_an_idle_fleet_makes_waits_on_a_busy_one() -> None:
    """The same two backends: with the others idle, the copy delays nobody; with a queue at each of
    them, it would delay those who come next. However busy, it is made in the end."""
    shape = prompt(2000)
    cold = backend("cold", evicted=2000)

    def chosen(queue: int, others: int) -> str:
        warm = backend("warm", cached=1900, queued=queue)
        rest = [backend(f"rest-{n}", queued=others, evicted=2000) for n in range(6)]
        return by_prefix(shape, warm, cold, *rest).backend

    assert chosen(8000, 0) != "warm"
    assert chosen(12_000, 4000) == "warm"
    assert chosen(15_000, 14_000) == "warm"
    assert chosen(40_000, 20_000) == "cold"


def test_faster_backend_may_be_worth_a_cold_start() -> None:
    """Seconds are compared, not tokens."""
    decision = by_prefix(
        prompt(8000), backend("slow", cached=4000, rate=500.0), backend("fast", rate=20_000.0)
    )
    assert decision.backend == "fast"


@pytest.mark.parametrize("affinity", range(20))
def test_short_warm_prefix_is_not_left_to_the_hash(affinity: int) -> None:
    """A short prompt's prefix is worth less than the noise in seconds, and still decides."""
    decision = by_prefix(
        prompt(40, affinity), backend("a", rate=20_000), backend("b", cached=32, rate=20_000)
    )
    assert (decision.backend, decision.reason) == ("b", Reason.PREFIX)


@pytest.mark.parametrize("affinity", range(20))
def test_warm_prefix_within_the_noise_outlives_small_load(affinity: int) -> None:
    """Noise in the load does not outweigh a prefix, if the score cannot tell them apart."""
    decision = by_prefix(
        prompt(100, affinity),
        backend("a", rate=100_000),
        backend("b", cached=96, queued=200, rate=100_000),
    )
    assert decision.backend == "b"


def test_accidental_overlap_does_not_decide() -> None:
    """Three tokens more of a common template header are no prefix: the hash decides, so prompts
    that begin alike meet wherever they come from."""
    seen = set()
    for affinity in range(50):
        one, two = backend("a", cached=23, rate=20_000), backend("b", cached=20, rate=20_000)
        decision = by_prefix(prompt(1000, affinity), one, two)
        assert decision.reason is Reason.RENDEZVOUS
        seen.add(decision.backend)
    assert seen == {"a", "b"}


def test_cold_prompts_spread_and_stick() -> None:
    """An idle, empty fleet: each affinity has one backend, and all backends get their share."""
    fleet = [backend(f"backend-{number}") for number in range(8)]
    homes = {
        affinity: by_prefix(prompt(2000, affinity), *fleet).backend for affinity in range(4000)
    }
    assert homes == {
        affinity: by_prefix(prompt(2000, affinity), *reversed(fleet)).backend
        for affinity in range(4000)
    }
    counts = Counter(homes.values())
    assert len(counts) == 8
    assert max(counts.values()) < 1.25 * 500


def test_two_holders_share_by_hash_and_the_reason_is_the_prefix() -> None:
    """Where several hold it, the hash picks among them, but being warm is what decided."""
    fleet = [backend("a", cached=900), backend("b", cached=900), backend("c")]
    decisions = [by_prefix(prompt(1000, affinity), *fleet) for affinity in range(30)]
    assert {decision.backend for decision in decisions} == {"a", "b"}
    assert {decision.reason for decision in decisions} == {Reason.PREFIX}


def test_burst_of_cold_prompts_sees_its_own_load() -> None:
    """Leases count at selection: equal prompts that hold nothing anywhere still spread once their
    home's queue outweighs what the first of them will have left there."""
    queued = {"a": 0, "b": 0}
    cached = {"a": 0, "b": 0}
    for _ in range(12):
        fleet = [
            backend(name, queued=queued[name], cached=cached[name], rate=1000.0) for name in queued
        ]
        chosen = by_prefix(prompt(1000), *fleet).backend
        queued[chosen] += 1000 - cached[chosen]
        cached[chosen] = 800
    assert all(queued.values())


def test_round_robin_in_order_of_names() -> None:
    """Turn by turn, whatever the load and the cache."""
    fleet = [backend("b", cached=100), backend("c", queued=10**6), backend("a")]
    decisions = [
        choose(Policy.ROUND_ROBIN, fleet, prompt(100), turn, Weights()) for turn in range(4)
    ]
    assert [decision.backend for decision in decisions] == ["a", "b", "c", "a"]
    assert {decision.reason for decision in decisions} == {Reason.ROUND_ROBIN}


def test_least_load_counts_seconds_then_requests() -> None:
    """A long queue on a fast backend may be the shorter one; the cache plays no part."""
    fast = backend("fast", queued=1000, rate=10_000.0, in_flight=5)
    slow = backend("slow", queued=500, rate=1000.0, cached=100)
    also = backend("also", queued=1000, rate=10_000.0, in_flight=4)
    decision = choose(Policy.LEAST_LOAD, [fast, slow, also], prompt(100), 0, Weights())
    assert (decision.backend, decision.reason) == ("also", Reason.LOAD)


def test_least_load_ties_go_by_hash() -> None:
    """Equally idle backends are chosen as rendezvous would."""
    fleet = [backend("a"), backend("b"), backend("c")]
    for affinity in range(20):
        decision = choose(Policy.LEAST_LOAD, fleet, prompt(100, affinity), 0, Weights())
        assert decision.backend == rendezvous(fleet, affinity).name
        assert decision.reason is Reason.RENDEZVOUS


def test_rendezvous_moves_about_one_in_n_to_a_newcomer() -> None:
    """A backend that joins takes its share and nothing else moves."""
    fleet = [backend(f"backend-{number}") for number in range(4)]
    grown = [*fleet, backend("backend-new")]
    moved = 0
    for affinity in range(4000):
        before, after = rendezvous(fleet, affinity).name, rendezvous(grown, affinity).name
        assert after in (before, "backend-new")
        moved += before != after
    assert 0.15 < moved / 4000 < 0.25


def test_random_is_even_and_forgets() -> None:
    """Each backend as often as the others, within five standard deviations, and whatever the last
    one was; callers that count alike choose apart for other prompts."""
    fleet = [backend(name, cached=1000, queued=10**6) for name in "abcd"]
    made = [choose(Policy.RANDOM, fleet, prompt(10), turn, Weights()) for turn in range(8000)]
    names = [one.backend for one in made]
    counts = Counter(names)
    other = [
        choose(Policy.RANDOM, fleet, prompt(10, 2), turn, Weights()).backend for turn in range(8000)
    ]
    within = 5 * (8000 * 3 / 16) ** 0.5

    assert {one.reason for one in made} == {Reason.RANDOM}
    assert all(abs(counts[name] - 2000) < within for name in "abcd")
    assert abs(sum(map(str.__eq__, names, names[1:])) - 2000) < within
    assert abs(sum(map(str.__eq__, names, other)) - 2000) < within
