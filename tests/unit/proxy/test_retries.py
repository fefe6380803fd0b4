"""The budget of second attempts, and requests that break backends."""

from hashlib import blake2b

from hypothesis import given
from hypothesis import strategies as st

from prefold.proxy.retries import BURST, MAX_SUSPECTS, REMEMBER_S, RetryBudget, Suspects


def suspects() -> Suspects:
    return Suspects(lambda body: blake2b(body).digest())


@given(st.lists(st.tuples(st.floats(0, 5), st.booleans()), max_size=200), st.floats(0, 1))
def test_second_attempts_never_exceed_what_was_earned(
    steps: list[tuple[float, bool]], ratio: float
) -> None:
    """A share of the requests, one a second, and ten that were saved."""
    now, budget, requests, spent = 0.0, RetryBudget(ratio, 0.0), 0, 0
    for wait, failed in steps:
        now += wait
        requests += 1
        budget.earn(now)
        if failed and budget.spend():
            spent += 1

    assert spent <= BURST + ratio * requests + now + 1e-6


def test_an_outage_is_not_doubled() -> None:
    """All requests fail at one moment: ten are tried twice, then one in ten."""
    budget = RetryBudget(0.1, 0.0)
    tried_twice = 0
    for _ in range(1000):
        budget.earn(0.0)
        tried_twice += budget.spend()

    assert tried_twice in (109, 110)


def test_a_request_that_broke_two_backends_is_refused_for_a_while() -> None:
    """Whoever sends it again; other requests are not."""
    known = suspects()
    known.harmed(b"poison", "a", 0.0)
    known.harmed(b"poison", "a", 1.0)
    assert not known.refused(b"poison", 1.0)

    known.harmed(b"poison", "b", 2.0)
    assert known.refused(b"poison", 3.0)
    assert not known.refused(b"other", 3.0)
    assert not known.refused(b"poison", 2.0 + REMEMBER_S)


def test_an_answer_clears_a_request() -> None:
    """It was the backend, then."""
    known = suspects()
    known.harmed(b"x", "a", 0.0)
    known.answered(b"x")
    known.harmed(b"x", "b", 1.0)

    assert not known.refused(b"x", 1.0)


def test_suspects_are_bounded() -> None:
    """The oldest is forgotten first."""
    known = suspects()
    for number in range(MAX_SUSPECTS + 1):
        for backend in ("a", "b"):
            known.harmed(str(number).encode(), backend, 0.0)

    assert not known.refused(b"0", 0.0)
    assert known.refused(str(MAX_SUSPECTS).encode(), 0.0)
