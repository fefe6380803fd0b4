"""Requests per minute and at once, with time passed in."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from prefold.proxy.errors import RateLimited
from prefold.proxy.rate_limit import Allowance, RateLimiter


def admitted(
    limiter: RateLimiter, now: float, *, rate: float = 0.0, parallel: int = 0, key: str = "k"
) -> bool:
    try:
        limiter.admit(key, requests_per_minute=rate, parallel=parallel, now=now)
    except RateLimited:
        return False
    return True


def told(limiter: RateLimiter, now: float, rate: float) -> int | None:
    """Seconds to wait; None: it got in."""
    try:
        limiter.admit("k", requests_per_minute=rate, parallel=0, now=now)
    except RateLimited as error:
        return int(error.headers["Retry-After"])
    return None


def test_a_minutes_requests_may_come_at_once_and_then_one_by_one() -> None:
    """Six a minute: six now, the seventh ten seconds later, and none in between."""
    limiter = RateLimiter()
    assert [admitted(limiter, 0.0, rate=6) for _ in range(7)] == [True] * 6 + [False]
    assert not admitted(limiter, 9.9, rate=6)
    assert admitted(limiter, 10.0, rate=6)
    assert not admitted(limiter, 10.0, rate=6)


def test_a_rate_below_one_a_minute_still_lets_one_in() -> None:
    """Its bucket holds one request."""
    limiter = RateLimiter()
    assert admitted(limiter, 0.0, rate=0.5)
    assert not admitted(limiter, 119.0, rate=0.5)
    assert admitted(limiter, 120.0, rate=0.5)


def test_parallel_requests_are_counted_to_their_end() -> None:
    """A refused one is not counted, and costs nothing of the rate."""
    limiter = RateLimiter()
    assert [admitted(limiter, 0.0, rate=9, parallel=2) for _ in range(3)] == [True, True, False]
    assert limiter.allowance("k", requests_per_minute=9, now=0.0) == Allowance(limit=9, remaining=7)
    limiter.release("k")
    assert admitted(limiter, 0.0, rate=9, parallel=2)
    assert limiter.parallel("k") == 2


def test_keys_do_not_share() -> None:
    """One key's limit is not another's."""
    limiter = RateLimiter()
    assert admitted(limiter, 0.0, rate=1, parallel=1, key="a")
    assert admitted(limiter, 0.0, rate=1, parallel=1, key="b")
    assert limiter.parallel("c") == 0


def test_without_limits_all_are_let_in_and_nothing_is_said() -> None:
    """0 is no limit."""
    limiter = RateLimiter()
    assert all(admitted(limiter, 0.0) for _ in range(1000))
    assert limiter.allowance("k", requests_per_minute=0, now=0.0) is None


def test_a_clock_that_goes_back_gives_nothing() -> None:
    """Nor does it take anything."""
    limiter = RateLimiter()
    assert admitted(limiter, 100.0, rate=1)
    assert not admitted(limiter, 50.0, rate=1)
    assert not admitted(limiter, 159.0, rate=1)
    assert admitted(limiter, 160.0, rate=1)


@given(st.floats(0.01, 10_000), st.floats(0, 1e6))
def test_who_waits_as_long_as_told_gets_in(rate: float, start: float) -> None:
    """Retry-After is whole seconds, 1 to 60: longer waits take several rounds of it, each of them
    for a reason."""
    limiter = RateLimiter()
    now, waits = start, 0
    while admitted(limiter, now, rate=rate):
        pass
    while (seconds := told(limiter, now, rate)) is not None:
        assert 1 <= seconds <= 60
        now += seconds
        waits += 1
    assert waits <= 1 / rate + 1


@given(
    st.sampled_from([1, 6, 60, 7]),
    st.lists(st.tuples(st.integers(0, 90), st.booleans()), max_size=60),
)
def test_the_bucket_is_that_of_exact_arithmetic(rate: int, steps: list[tuple[int, bool]]) -> None:
    """Against a naive model in fractions, for any sequence of waits and requests; what is said to
    remain is what is there."""
    limiter = RateLimiter()
    tokens, now = Fraction(rate), 0
    for wait, asks in steps:
        now += wait
        tokens = min(tokens + Fraction(rate * wait, 60), Fraction(rate))
        if asks:
            assert admitted(limiter, float(now), rate=rate) == (tokens >= 1)
            tokens -= 1 if tokens >= 1 else 0
        said = limiter.allowance("k", requests_per_minute=rate, now=float(now))
        assert said is not None
        assert (said.limit, said.remaining) == (rate, int(tokens))
