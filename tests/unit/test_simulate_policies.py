"""Each policy by what defines it, on fleets small enough to see why."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from prefold.proxy.simulate import peers
from prefold.proxy.simulate.engine import EngineShape, Job
from prefold.proxy.simulate.peer import Choose, Load, View
from prefold.proxy.simulate.policies import POLICIES
from prefold.proxy.simulate.preble import HIGH_LOAD, WINDOW_S, Preble
from prefold.proxy.simulate.product import Product
from prefold.proxy.simulate.router import Fleet, Router
from prefold.proxy.simulate.run import simulate
from prefold.proxy.simulate.synthetic import SyntheticOptions, make_trace
from prefold.proxy.simulate.trace import Request, Row, build_trace

ENGINE = EngineShape(
    cache_tokens=1000, block_tokens=10, prefill_tokens_per_s=100.0, slots=9, token_s=0.1
)
FLEET = Fleet(backends=2, engine=ENGINE)


def request_of(*blocks: int) -> Request:
    """10 tokens a block."""
    return build_trace("test", 10, [Row(0.0, len(blocks) * 10, 1, blocks)]).requests[0]


def view(
    *loads: Load,
    matched: Sequence[int] | None = None,
    prompt: Request | None = None,
    turn: int = 0,
    now: float = 0.0,
) -> View:
    """A prompt of 100 tokens unless another is given."""
    return View(
        request=prompt or request_of(*range(10)),
        now=now,
        turn=turn,
        loads=list(loads),
        matched=list(matched or [0] * len(loads)),
        engine=ENGINE,
        random=random.Random(1),
    )


def busy(in_flight: int, **counts: int) -> Load:
    return Load(in_flight=in_flight, **counts)


def test_round_robin_takes_turns() -> None:
    """One after the other, whatever their loads."""
    turns = [peers.round_robin(view(busy(9), busy(0), busy(5), turn=turn)) for turn in range(4)]

    assert turns == [0, 1, 2, 0]


def test_random_uses_all() -> None:
    """Every backend gets some of many requests."""
    seen = view(busy(0), busy(0), busy(0))

    assert {peers.random_choice(seen) for _ in range(50)} == {0, 1, 2}


def test_least_load_counts_requests() -> None:
    """The fewest in flight; among equals, not always the same one."""
    assert peers.least_load(view(busy(2), busy(1), busy(3))) == 1
    idle = view(busy(0), busy(0), busy(1))
    assert {peers.least_load(idle) for _ in range(50)} == {0, 1}


@pytest.mark.parametrize("policy", [peers.rendezvous, peers.kubeai])
def test_hashes_send_equal_openings_to_one_place(policy: Choose) -> None:
    """By the prompt's beginning only, and different beginnings spread over the fleet."""
    idle = [busy(0) for _ in range(4)]
    trace = build_trace("t", 10, [Row(0.0, 30, 1, [at % 40, at, at]) for at in range(80)])
    chosen = [policy(view(*idle, prompt=prompt)) for prompt in trace.requests]

    assert chosen[:40] == chosen[40:]
    assert set(chosen) == {0, 1, 2, 3}


def test_kubeai_bounds_the_load() -> None:
    """A backend above 1.25 times the mean is passed over; rendezvous does not care."""
    prompt = request_of(5)
    home = peers.kubeai(view(busy(0), busy(0), prompt=prompt))
    crowded = [busy(0), busy(0)]
    crowded[home].in_flight = 10

    assert peers.kubeai(view(*crowded, prompt=prompt)) == 1 - home
    at_rest = peers.rendezvous(view(busy(0), busy(0), prompt=prompt))
    crowded = [busy(0), busy(0)]
    crowded[at_rest].in_flight = 10
    assert peers.rendezvous(view(*crowded, prompt=prompt)) == at_rest


@pytest.mark.parametrize("policy", [peers.sglang, peers.sglang_spill])
def test_sglang_follows_matches_above_its_threshold(policy: Choose) -> None:
    """More than 0.3 of the prompt: the match; less: the shortest queue."""
    assert policy(view(busy(3), busy(0), matched=[40, 0])) == 0
    assert policy(view(busy(3), busy(0), matched=[30, 0])) == 1


def test_sglang_switches_affinity_off_for_everybody() -> None:
    """One crowded worker opens the gate, even for prompts that match another one."""
    loads = [busy(100), busy(3), busy(2)]

    assert peers.sglang(view(*loads, matched=[0, 90, 0])) == 2
    assert peers.sglang_spill(view(*loads, matched=[0, 90, 0])) == 1


def test_sglang_spill_looks_at_the_matched_worker() -> None:
    """It is passed over only when itself above the fleet's mean by the margin."""
    assert peers.sglang_spill(view(busy(30), busy(2), busy(1), matched=[90, 0, 0])) == 2
    assert peers.sglang_spill(view(busy(5), busy(2), busy(1), matched=[90, 0, 0])) == 0


def test_production_stack_has_no_load_term() -> None:
    """The longest match, however busy; where all match alike, any."""
    assert peers.production_stack(view(busy(500), busy(0), matched=[10, 0])) == 0
    equal = view(busy(500), busy(0), matched=[10, 10])
    assert {peers.production_stack(equal) for _ in range(50)} == {0, 1}


def test_production_stack_load_weighs_match_against_relative_load() -> None:
    """Two backends, one with the whole prompt: it is left where it is half above the mean."""
    warm = [100, 0]

    assert peers.production_stack_load(view(busy(14), busy(6), matched=warm)) == 0
    assert peers.production_stack_load(view(busy(16), busy(4), matched=warm)) == 1
    cold = view(busy(1, sent=3), busy(2, sent=1))
    assert peers.production_stack_load(cold) == 1


def test_llm_d_weighs_three_scores() -> None:
    """3 for the prefix against 2 for the queue and 2 for the free cache."""
    assert peers.llm_d(view(busy(1, waiting=1), busy(0), matched=[100, 0])) == 0
    assert peers.llm_d(view(busy(1, waiting=1), busy(0), matched=[50, 0])) == 1
    assert peers.llm_d(view(busy(1, blocks=80), busy(0), matched=[50, 0])) == 1


def test_dynamo_counts_blocks_of_prefill_and_decode() -> None:
    """A match of 5 blocks is worth 5 blocks of others' work, and no more."""
    warm = [50, 0]

    assert peers.dynamo(view(busy(1, blocks=4), busy(0), matched=warm)) == 0
    assert peers.dynamo(view(busy(1, blocks=6), busy(0), matched=warm)) == 1
    assert peers.dynamo(view(busy(1, waiting_tokens=60), busy(0), matched=warm)) == 1


def test_preble_exploits_only_where_more_is_cached_than_new() -> None:
    """60 of 100 tokens held: there, although it did all of the work; 40: to the least cost."""
    preble = Preble()
    first = preble(view(busy(0), busy(0)))
    held = [0, 0]
    held[first] = 60

    assert preble(view(busy(0), busy(0), matched=held)) == first
    held[first] = 40
    assert preble(view(busy(0), busy(0), matched=held)) == 1 - first


def test_preble_moves_a_prefix_off_an_overloaded_gpu() -> None:
    """Once it is warm, and while the window holds the work."""
    preble = Preble()
    first = preble(view(busy(0), busy(0)))
    held = [0, 0]
    held[first] = 60
    warm = 50 * 2

    assert HIGH_LOAD > 1
    assert preble(view(busy(0), busy(0), matched=held, turn=warm)) == 1 - first
    later = WINDOW_S + 1
    assert preble(view(busy(0), busy(0), matched=held, turn=warm, now=later)) == first


def finish(router: Router, request: Request, backend: int, now: float) -> None:
    job = Job(request, request.prefix.chain(10), backend, 0.0)
    router.first_token(job, now)
    router.finished(job, now)


@pytest.mark.parametrize(
    "policy",
    ["sglang", "sglang_spill", "production_stack", "production_stack_load", "llm_d", "preble",
     "dynamo", "prefold"],
)  # fmt: skip
def test_a_prompt_goes_back_to_where_it_was(policy: str) -> None:
    """Every policy that follows prefixes does so on an idle fleet."""
    for seed in range(5):
        router = POLICIES[policy](FLEET, seed)
        trace = build_trace("t", 10, [Row(0.0, 100, 1, range(10)), Row(9.0, 110, 1, range(11))])
        one, again = trace.requests
        first = router.route(one, 0.0)
        finish(router, one, first, 1.0)

        assert router.route(again, 9.0) == first


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_serves_a_workload(policy: str) -> None:
    """All requests end, nothing is reused that was not computed, and a seed fixes the outcome."""
    trace = make_trace("agents", SyntheticOptions(requests=200))
    fleet = Fleet(
        backends=3,
        engine=EngineShape(
            cache_tokens=100_000,
            block_tokens=trace.block_tokens,
            prefill_tokens_per_s=20_000.0,
            slots=32,
            token_s=0.01,
        ),
    )
    figures = simulate(trace, POLICIES[policy](fleet, 1), fleet)

    assert 0 < figures.hit_rate < 1
    assert 1 <= figures.imbalance <= 3
    assert figures.computed_tokens == round(trace.prompt_tokens * (1 - figures.hit_rate))
    assert simulate(trace, POLICIES[policy](fleet, 1), fleet) == figures


def test_the_product_learns_the_rate_of_prefill() -> None:
    """Its loads come down again, and its rate becomes the engines' own."""
    trace = build_trace("t", 10, [Row(float(at) * 9, 100, 1, [at] * 10) for at in range(20)])
    router = POLICIES["prefold"](FLEET, 1)
    simulate(trace, router, FLEET)

    assert isinstance(router, Product)
    for backend in router.backends:
        assert (backend.in_flight, backend.queued_tokens) == (0, 0)
        assert backend.rate.tokens_per_s == pytest.approx(100.0)
