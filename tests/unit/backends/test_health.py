"""The health state machine, with time passed in."""

from hypothesis import given
from hypothesis import strategies as st

from prefold.backends.health import Health, HealthRules, Outcome

RULES = HealthRules(failures_to_eject=3, eject_s=10.0, eject_max_s=40.0)


def reachable() -> Health:
    health = Health(RULES)
    health.probed()
    return health


def fail(health: Health, now: float, times: int = 1) -> None:
    for _ in range(times):
        health.ended(Outcome.FAILURE, now, trial=health.started(now))


def test_a_backend_that_was_never_probed_is_not_usable() -> None:
    """Nothing is sent where nobody is known to listen."""
    assert not Health(RULES).usable(0.0)


def test_a_few_failures_do_not_eject_and_a_success_forgets_them() -> None:
    """Only failures in a row count."""
    health = reachable()
    fail(health, 0.0, 2)
    health.ended(Outcome.SUCCESS, 0.0, trial=health.started(0.0))
    fail(health, 0.0, 2)

    assert health.usable(0.0)


def test_backpressure_is_no_evidence_of_ill_health() -> None:
    """429 and 503 say busy: neither a failure nor a success."""
    health = reachable()
    fail(health, 0.0, 2)
    for _ in range(10):
        health.ended(Outcome.NEUTRAL, 0.0, trial=health.started(0.0))
    assert health.usable(0.0)
    fail(health, 0.0)

    assert not health.usable(0.0)


def test_a_passing_probe_does_not_end_an_ejection() -> None:
    """A stuck engine still answers /health."""
    health = reachable()
    fail(health, 0.0, 3)
    health.probed()

    assert not health.usable(9.9)
    assert health.state(9.9) == "ejected"


def test_after_an_ejection_one_trial_at_a_time_decides() -> None:
    """Half-open: the second request waits for the first one's result."""
    health = reachable()
    fail(health, 0.0, 3)

    assert health.usable(10.0)
    trial = health.started(10.0)
    assert not health.usable(10.0)
    health.ended(Outcome.SUCCESS, 11.0, trial=trial)
    assert health.usable(11.0)
    assert health.state(11.0) == "up"


def test_a_request_from_before_the_ejection_is_no_trial() -> None:
    """A long stream that still runs must not keep the backend out."""
    health = reachable()
    old = health.started(0.0)
    fail(health, 0.0, 3)

    trial = health.started(10.0)
    assert (old, trial) == (False, True)
    health.ended(Outcome.SUCCESS, 11.0, trial=trial)
    assert health.usable(11.0)
    health.ended(Outcome.NEUTRAL, 12.0, trial=old)
    assert health.usable(12.0)


def test_only_a_backend_that_was_away_may_have_restarted() -> None:
    """Late answers cost it requests, not what is believed of its cache."""
    health = reachable()
    for _ in range(5):
        health.silent()
    assert (health.reachable, health.gone) == (False, False)
    health.down()

    assert health.gone


def test_ejections_grow_and_are_bounded() -> None:
    """10, 20, 40, 40 seconds; any success starts again from the first."""
    health = reachable()
    now = 0.0
    fail(health, now, 3)
    for seconds in (10.0, 20.0, 40.0, 40.0):
        assert not health.usable(now + seconds - 0.1)
        assert health.usable(now + seconds)
        now += seconds
        fail(health, now)


def test_failures_of_one_burst_are_one_ejection() -> None:
    """Requests that were in flight together and fail together do not double the time each."""
    health = reachable()
    trials = [health.started(0.0) for _ in range(20)]
    for trial in trials:
        health.ended(Outcome.FAILURE, 0.0, trial=trial)

    assert health.usable(10.0)


def test_a_refused_connection_is_down_until_a_probe_succeeds() -> None:
    """No need to count: nobody listens there."""
    health = reachable()
    health.down()
    assert not health.usable(0.0)
    health.probed()

    assert health.usable(0.0)


def test_one_probe_without_an_answer_is_forgiven_two_in_a_row_are_not() -> None:
    """A machine that is busy with prefill may answer late."""
    health = reachable()
    health.silent()
    health.probed()
    health.silent()
    assert health.usable(0.0)
    health.silent()

    assert not health.usable(0.0)


@given(st.lists(st.sampled_from([*Outcome]), max_size=30), st.floats(0, 1000))
def test_every_backend_that_recovers_is_used_again(outcomes: list[Outcome], now: float) -> None:
    """No history leaves a backend shut out for ever: after the longest ejection it is usable."""
    health = reachable()
    for outcome in outcomes:
        health.ended(outcome, now, trial=health.started(now))

    assert health.usable(now + RULES.eject_max_s)
