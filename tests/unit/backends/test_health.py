"""The health state machine, with time passed in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.backends.health import COLD, Health, HealthRules, Outcome

RULES = HealthRules(failures_to_eject=3, eject_s=10.0, eject_max_s=40.0, slow_start_s=10.0)


def reachable() -> Health:
    health = Health(RULES)
    health.probed(0.0)
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
    health.probed(0.0)

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


def test_requests_that_hang_eject_a_backend_whose_probes_pass() -> None:
    """Each time-out is followed by a good probe; only a request that is answered re-admits."""
    health = reachable()
    for now in (1.0, 2.0, 3.0):
        fail(health, now)
        health.probed(now)
    assert health.state(3.0) == "ejected"
    health.probed(12.9)
    assert not health.usable(12.9)
    fail(health, 13.0)
    health.probed(13.0)
    assert health.state(13.0) == "ejected"

    health.ended(Outcome.SUCCESS, 33.0, trial=health.started(33.0))
    assert health.state(33.0) == "up"


def test_a_trial_without_a_verdict_leaves_the_next_one_to_decide() -> None:
    """A client that left, or a busy backend, is no evidence either way."""
    health = reachable()
    fail(health, 0.0, 3)
    health.ended(Outcome.NEUTRAL, 10.0, trial=health.started(10.0))

    assert health.state(10.0) == "half_open"
    assert health.usable(10.0)


# Slow start.


def test_the_first_start_is_not_slow() -> None:
    """Then all caches are cold, and somebody has to serve."""
    assert reachable().warmth(0.0) == 1.0


def test_a_backend_that_was_away_gets_its_share_by_degrees() -> None:
    """Its cache is cold; from COLD to all of it within slow_start_s."""
    health = reachable()
    health.down()
    health.probed(100.0)

    assert health.warmth(100.0) == pytest.approx(COLD)
    assert health.warmth(105.0) == pytest.approx((1 + COLD) / 2)
    assert health.warmth(110.0) == 1.0
    health.probed(106.0)
    assert health.warmth(110.0) == 1.0, "a further probe is no return"


def test_a_backend_that_is_readmitted_gets_its_share_by_degrees() -> None:
    """Not while it is on trial: one request at a time is little enough, and it has to come."""
    health = reachable()
    fail(health, 0.0, 3)
    assert health.warmth(10.0) == 1.0
    health.ended(Outcome.SUCCESS, 12.0, trial=health.started(10.0))

    assert health.warmth(12.0) == pytest.approx(COLD)
    assert health.warmth(22.0) == 1.0


def test_a_late_probe_is_no_restart() -> None:
    """Silence does not empty a cache."""
    health = reachable()
    for _ in range(3):
        health.silent()
    health.probed(100.0)

    assert health.warmth(100.0) == 1.0


def test_a_backend_that_joins_a_fleet_at_work_starts_slowly() -> None:
    """The others have their caches."""
    health = Health(RULES)
    health.joins()
    health.probed(100.0)

    assert health.warmth(100.0) == pytest.approx(COLD)


def test_without_a_slow_start_a_backend_has_its_share_at_once() -> None:
    """Zero seconds turn it off."""
    health = Health(HealthRules(slow_start_s=0.0))
    health.joins()
    health.probed(100.0)

    assert health.warmth(100.0) == 1.0


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
    health.probed(0.0)

    assert health.usable(0.0)


def test_one_probe_without_an_answer_is_forgiven_two_in_a_row_are_not() -> None:
    """A machine that is busy with prefill may answer late."""
    health = reachable()
    health.silent()
    health.probed(0.0)
    health.silent()
    assert health.usable(0.0)
    health.silent()

    assert not health.usable(0.0)


# What holds for every history.

Event = tuple[str, int]
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["start", "success", "neutral", "failure", "probe", "silent", "down"]),
        st.integers(0, 20),  # seconds later; for the ends also which of the open requests
    ),
    max_size=60,
)


def play(events: list[Event]) -> tuple[Health, float, list[bool]]:
    """A health after these events, the time then, and the requests still open."""
    health, now, open_requests = reachable(), 0.0, list[bool]()
    for kind, number in events:
        now += number
        if kind == "start":
            open_requests.append(health.started(now))
        elif kind == "probe":
            health.probed(now)
        elif kind == "silent":
            health.silent()
        elif kind == "down":
            health.down()
        elif open_requests:
            trial = open_requests.pop(number % len(open_requests))
            health.ended(Outcome(kind), now, trial=trial)
    return health, now, open_requests


@given(EVENTS)
def test_at_most_one_trial_is_open_whatever_happens(events: list[Event]) -> None:
    """In whatever order requests end."""
    _, _, open_requests = play(events)

    assert sum(open_requests) <= 1


@given(EVENTS)
def test_a_backend_whose_requests_succeed_again_is_closed_again(events: list[Event]) -> None:
    """No history shuts a backend out for ever, nor leaves it on trial for ever."""
    health, now, open_requests = play(events)
    for trial in open_requests:
        health.ended(Outcome.SUCCESS, now, trial=trial)
    health.probed(now)
    now += RULES.eject_max_s
    assert health.usable(now)
    health.ended(Outcome.SUCCESS, now, trial=health.started(now))

    assert health.state(now) == "up"
    assert health.usable(now)
    assert health.warmth(now + RULES.slow_start_s) == 1.0


@given(EVENTS, st.floats(0, 100))
def test_warmth_is_a_share(events: list[Event], later: float) -> None:
    """Never nothing, never more than all, and never less later on."""
    health, now, _ = play(events)

    assert COLD <= health.warmth(now) <= health.warmth(now + later) <= 1.0


@given(EVENTS)
def test_probes_alone_never_end_an_ejection(events: list[Event]) -> None:
    """Nor does anything but a request that was answered."""
    health, now, _ = play(events)
    fail(health, now, 3)
    before = health.state(now)
    for _ in range(5):
        health.probed(now)

    if before != "down":
        assert health.state(now) == before
    assert health.state(now) != "up"
