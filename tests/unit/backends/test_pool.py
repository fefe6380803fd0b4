"""Candidates and leases."""

import pytest

from prefold.backends.backend import Backend, Lease, PrefillRate
from prefold.backends.engine import EngineFacts, ServedModel
from prefold.backends.health import HealthRules, Outcome
from prefold.backends.pool import BackendPool


def backend(name: str, *models: str) -> Backend:
    made = Backend(
        name=name,
        url=f"http://{name}",
        headers={},
        engine=None,
        rules=HealthRules(failures_to_eject=1),
    )
    made.facts = EngineFacts(models=tuple(ServedModel(id=model) for model in models))
    made.health.probed()
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


def test_ejected_backends_are_left_out_unless_none_would_remain() -> None:
    """Panic mode: a wrong verdict on all must not become an outage."""
    first, second = backend("a", "m"), backend("b", "m")
    pool = BackendPool([first, second], 1000.0)
    eject(first)
    assert names(pool.candidates("m", 0.0)) == ["b"]
    eject(second)

    assert names(pool.candidates("m", 0.0)) == ["a", "b"]


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
    lease.prefilled()
    lease.prefilled()
    assert (one.in_flight, one.queued_tokens) == (1, 0)
    lease.release(Outcome.SUCCESS, 0.0)
    lease.release(Outcome.FAILURE, 0.0)

    assert (one.in_flight, one.queued_tokens) == (0, 0)
    assert one.health.usable(0.0)


def test_the_prefill_rate_follows_what_is_observed() -> None:
    """Old observations fade; tiny prompts and impossible times do not count."""
    rate = PrefillRate()
    rate.observe(10, 5.0)
    rate.observe(5000, 0.0)
    assert rate.tokens_per_s is None
    rate.observe(1000, 1.0)
    assert rate.tokens_per_s == pytest.approx(1000.0)
    for _ in range(50):
        rate.observe(2000, 10.0)

    assert rate.tokens_per_s == pytest.approx(200.0, rel=0.01)


def test_a_backend_that_was_not_observed_is_taken_for_an_average_one() -> None:
    """Being new must neither attract nor repel; with no rate at all, the configured guess."""
    old, new = backend("a", "m"), backend("b", "m")
    pool = BackendPool([old, new], 5000.0)
    assert pool.prefill_rate(old) == pool.prefill_rate(new) == 5000.0
    old.rate.observe(1000, 10.0)

    assert pool.prefill_rate(old) == pool.prefill_rate(new) == pytest.approx(100.0)
