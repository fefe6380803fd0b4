"""When a backend's predictions are taken for wrong, and for right again; seconds are passed in."""

from __future__ import annotations

import pytest

from prefold.backends.backend import Backend, Mode
from prefold.backends.health import HealthRules
from prefold.backends.prediction import (
    BAD_FOR_S,
    DECAY,
    GOOD_FOR_S,
    MAX_GOOD_FOR_S,
    MIN_REQUESTS,
    SILENT_ANSWERS,
    Change,
    Prediction,
)

WRONG, RIGHT = (1000, 100), (1000, 950)


def until_changed(
    prediction: Prediction, pair: tuple[int, int], start: float, *, step: float = 1.0
) -> float | None:
    """When that report, repeated every `step` seconds, changes the verdict; None: never."""
    now = start
    while now < start + 3 * MAX_GOOD_FOR_S:
        if prediction.observe(*pair, now) is not Change.NONE:
            return now
        now += step
    return None


def test_wrong_for_long_is_not_trusted() -> None:
    """For a minute, and not by a few requests however far apart."""
    prediction = Prediction()
    assert until_changed(prediction, WRONG, 0.0) == MIN_REQUESTS - 1 + BAD_FOR_S
    assert not prediction.trusted
    slow = Prediction()
    assert until_changed(slow, WRONG, 0.0, step=100.0) == MIN_REQUESTS * 100.0


@pytest.mark.parametrize("pair", [(1000, 600), RIGHT, (0, 1000), (300, 1000), (63, 0), (0, 0)])
def test_what_is_no_reason_to_drop(pair: tuple[int, int]) -> None:
    """Claims that mostly hold, claims of too little, and what is less than rounding."""
    assert until_changed(Prediction(), pair, 0.0) is None


def test_a_short_time_of_errors_is_none() -> None:
    """A flush or a restart, after which the index is right again."""
    prediction = Prediction()
    for now in range(300):
        pair = WRONG if now % 100 < 40 else RIGHT
        assert prediction.observe(*pair, float(now)) is Change.NONE


def dropped(prediction: Prediction, start: float) -> float:
    now = until_changed(prediction, WRONG, start)
    assert now is not None
    assert not prediction.trusted
    return now


def test_it_rises_when_what_it_would_have_claimed_was_right_for_long() -> None:
    """Twice as long each time that it had to drop soon after; and with what is in between nothing
    changes, or it would go up and down."""
    prediction = Prediction()
    waited = []
    now = dropped(prediction, 0.0)
    assert until_changed(prediction, (1000, 700), now) is None
    prediction.begin_anew()
    for _ in range(8):
        start = now
        risen = until_changed(prediction, RIGHT, start)
        assert risen is not None
        assert prediction.trusted
        waited.append(risen - start)
        now = dropped(prediction, risen)
    least = MIN_REQUESTS - 1
    assert waited[:3] == [least + GOOD_FOR_S, least + 2 * GOOD_FOR_S, least + 4 * GOOD_FOR_S]
    assert waited[-1] == least + MAX_GOOD_FOR_S


def test_who_expects_nothing_does_not_rise() -> None:
    """An index that lost all is not right by being silent."""
    prediction = Prediction()
    now = dropped(prediction, 0.0)
    assert until_changed(prediction, (0, 1000), now) is None


def test_the_error_is_of_tokens_and_the_latest_count_most() -> None:
    """Both directions; None before there was anything to compare."""
    prediction = Prediction()
    assert prediction.error is None
    prediction.observe(1000, 500, 0.0)
    assert prediction.error == 0.5
    prediction.observe(500, 1000, 1.0)
    assert prediction.error == 0.5
    prediction.observe(1000, 1000, 2.0)
    wrong = 500 * (DECAY + DECAY**2)
    assert prediction.error == pytest.approx(wrong / (1000 * (1 + DECAY + DECAY**2)))
    assert prediction.too_much == pytest.approx(
        500 * DECAY**2 / (1000 + 500 * DECAY + 1000 * DECAY**2)
    )


@pytest.fixture
def backend() -> Backend:
    made = Backend(name="b", url="http://b", headers={}, engine=None, rules=HealthRules())
    made.mode, made.mode_reason = Mode.FEEDBACK, "the engine's tokens equal ours"
    return made


def test_an_engine_that_never_reports_is_unverified(backend: Backend) -> None:
    """After some answers; the first report ends it."""
    for number in range(1, SILENT_ANSWERS + 3):
        change = backend.prediction.unreported()
        assert (change is Change.SILENT) == (number == SILENT_ANSWERS)
    assert backend.shown_mode is Mode.UNVERIFIED
    assert backend.shown_reason.endswith("it never reports cached tokens")
    assert backend.prediction.observe(0, 0, 1.0) is Change.HEARD
    assert (backend.shown_mode, backend.shown_reason) == (Mode.FEEDBACK, backend.mode_reason)


def test_a_backend_that_is_not_trusted_says_so(backend: Backend) -> None:
    """Its mode is the hash, with the reason; until its engine is another."""
    dropped(backend.prediction, 0.0)
    assert (backend.shown_mode, backend.mode) == (Mode.RENDEZVOUS, Mode.FEEDBACK)
    assert "far less than expected" in backend.shown_reason
    backend.prediction.reset()
    assert (backend.shown_mode, backend.shown_reason) == (Mode.FEEDBACK, backend.mode_reason)
