"""When Redis is tried again, and what is logged of it."""

from prefold.proxy.replicas.breaker import FIRST_PAUSE_S, MAX_PAUSE_S, Breaker


def test_each_change_is_said_once() -> None:
    """With the reason, and with the time that it took."""
    breaker = Breaker()
    assert not breaker.closed
    assert "shares" in breaker.worked(0.0)
    assert breaker.worked(1.0) == ""
    assert breaker.closed

    assert "TimeoutError" in breaker.failed("TimeoutError", 2.0)
    assert breaker.failed("ConnectionError", 3.0) == ""
    assert not breaker.closed
    assert "10.0 s" in breaker.worked(12.0)
    assert breaker.worked(13.0) == ""


def test_pauses_grow_to_a_bound_and_begin_anew() -> None:
    """A Redis that is away for long is not asked often."""
    breaker = Breaker()
    pauses = []
    for second in range(10):
        breaker.failed("ConnectionError", float(second))
        pauses.append(breaker.pause_s)
    assert pauses[0] == FIRST_PAUSE_S
    assert pauses == sorted(pauses)
    assert pauses[-1] == MAX_PAUSE_S

    breaker.worked(20.0)
    breaker.failed("ConnectionError", 21.0)
    assert breaker.pause_s == FIRST_PAUSE_S
