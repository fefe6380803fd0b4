"""What holds for every choice, whatever the candidates."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from prefold.proxy.routing import (
    Candidate,
    Policy,
    RequestShape,
    Weights,
    among,
    choose,
    score_s,
    work_tokens,
)

PROMPT = 4096

weights = st.builds(
    Weights,
    eviction_price=st.floats(0, 4),
    crowd_price=st.floats(0, 20),
    decode_penalty_s=st.floats(0, 0.1),
    noise_relative=st.floats(0, 0.3),
    noise_s=st.floats(0, 0.1),
    noise_work=st.floats(0, 0.2),
)
prompts = st.builds(
    RequestShape, prompt_tokens=st.integers(0, PROMPT), affinity=st.integers(0, 2**64 - 1)
)
policies = st.sampled_from(Policy)


@st.composite
def fleets(draw: st.DrawFn) -> list[Candidate]:
    """Small numbers now and then, so that ties and near-ties are common."""
    few = st.sampled_from([0, 0, 16, 512])
    return [
        Candidate(
            name=f"backend-{number}",
            cached_tokens=draw(few | st.integers(0, PROMPT)),
            evicted_reuse=draw(few | st.integers(0, PROMPT)),
            queued_tokens=draw(few | st.integers(0, 100_000)),
            in_flight=draw(st.integers(0, 3) | st.integers(0, 200)),
            prefill_tokens_per_s=draw(st.sampled_from([1000.0, 5000.0]) | st.floats(1, 100_000)),
            waiting=draw(st.sampled_from([0, 0, 5])),
        )
        for number in range(draw(st.integers(1, 9)))
    ]


@given(policies, fleets(), prompts, st.integers(0, 1000), weights, st.randoms())
def test_order_of_candidates_does_not_matter(
    policy: Policy,
    fleet: list[Candidate],
    prompt: RequestShape,
    turn: int,
    weighed: Weights,
    shuffler: random.Random,
) -> None:
    """The same decision in any order, and always one of the candidates as it was given."""
    decision = choose(policy, fleet, prompt, turn, weighed)
    chosen = {candidate.name: candidate for candidate in fleet}[decision.backend]
    assert decision.expected_cached_tokens == chosen.cached_tokens
    assert decision.available_cached_tokens == max(each.cached_tokens for each in fleet)
    shuffled = list(fleet)
    shuffler.shuffle(shuffled)
    assert choose(policy, shuffled, prompt, turn, weighed) == decision


@given(fleets(), prompts, weights)
def test_score_of_the_chosen_is_within_the_noise_of_the_best(
    fleet: list[Candidate], prompt: RequestShape, weighed: Weights
) -> None:
    """No tie-break costs more than the margin."""
    prompt = among(prompt, fleet)
    decision = choose(Policy.PREFIX, fleet, prompt, 0, weighed)
    best = min(score_s(candidate, prompt, weighed) for candidate in fleet)
    assert decision.score_s <= best + max(weighed.noise_s, weighed.noise_relative * best)


@given(fleets(), prompts, weights)
def test_no_near_tie_loses_a_warm_prefix(
    fleet: list[Candidate], prompt: RequestShape, weighed: Weights
) -> None:
    """Whoever scores no worse than the chosen would not have saved more than the noise in work."""
    prompt = among(prompt, fleet)
    decision = choose(Policy.PREFIX, fleet, prompt, 0, weighed)
    chosen = {candidate.name: candidate for candidate in fleet}[decision.backend]
    own = work_tokens(chosen, prompt, weighed)
    for other in fleet:
        if score_s(other, prompt, weighed) <= decision.score_s:
            saved = own - work_tokens(other, prompt, weighed)
            assert saved <= weighed.noise_work * prompt.prompt_tokens + 1e-6


@given(fleets(), prompts, st.integers(0, 20), st.integers(1, 20))
def test_a_higher_price_of_copies_never_makes_more_of_them(
    fleet: list[Candidate], prompt: RequestShape, price: int, more: int
) -> None:
    """At one rate and without noise, the dearer a copy, the less of the prompt is copied."""
    alike = [msgspec.structs.replace(each, prefill_tokens_per_s=1000.0) for each in fleet]
    length = prompt.prompt_tokens

    def held(crowd_price: float) -> int:
        exact = Weights(crowd_price=crowd_price, noise_relative=0.0, noise_s=0.0, noise_work=0.0)
        decision = choose(Policy.PREFIX, alike, prompt, 0, exact)
        return min(decision.expected_cached_tokens, length)

    assert held(price + more) >= held(price)


@given(fleets(), prompts, st.integers(0, 10_000), st.integers(1, 5))
def test_round_robin_is_fair(
    fleet: list[Candidate], prompt: RequestShape, first: int, rounds: int
) -> None:
    """Over whole rounds each candidate gets the same number of requests."""
    turns = range(first, first + rounds * len(fleet))
    counts = Counter(
        choose(Policy.ROUND_ROBIN, fleet, prompt, turn, Weights()).backend for turn in turns
    )
    assert counts == {candidate.name: rounds for candidate in fleet}


@given(fleets(), prompts, st.data())
def test_rendezvous_moves_only_what_left(
    fleet: list[Candidate], prompt: RequestShape, data: st.DataObject
) -> None:
    """When a backend other than the chosen one goes away, the choice stays."""
    chosen = choose(Policy.RENDEZVOUS, fleet, prompt, 0, Weights()).backend
    others = [candidate for candidate in fleet if candidate.name != chosen]
    gone = data.draw(st.sets(st.sampled_from(others)) if others else st.just(set()))
    left = [candidate for candidate in fleet if candidate not in gone]
    assert choose(Policy.RENDEZVOUS, left, prompt, 0, Weights()).backend == chosen


@given(fleets(), prompts)
def test_least_load_has_no_shorter_queue(fleet: list[Candidate], prompt: RequestShape) -> None:
    """Nobody has fewer seconds queued, nor fewer requests at the same."""
    name = choose(Policy.LEAST_LOAD, fleet, prompt, 0, Weights()).backend
    chosen = {candidate.name: candidate for candidate in fleet}[name]

    def load(candidate: Candidate) -> tuple[float, int]:
        return candidate.queued_tokens / candidate.prefill_tokens_per_s, candidate.in_flight

    assert load(chosen) == min(map(load, fleet))
