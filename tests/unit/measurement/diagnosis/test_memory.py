"""KV memory: what engines said, and what may be said of it."""

from __future__ import annotations

from prefold.measurement.diagnosis.answer import Verdict
from prefold.measurement.diagnosis.memory import kv_memory
from tests.support.diagnosis import figure, looked


def test_waiting_beside_a_full_cache_is_a_limit() -> None:
    """Three in ten looks, over half an hour."""
    samples = [
        looked(5.0 * at, waiting=3 * (at % 10 < 3), kv_usage=0.97 if at % 10 < 3 else 0.6)
        for at in range(360)
    ]
    answer = kv_memory(samples)

    assert answer.verdict is Verdict.YES
    assert figure(answer, "both at once").value == 0.3


def test_preemptions_are_a_limit() -> None:
    """Counted between looks, for each backend, also over a restart."""
    counts = [0, 0, 2, 5, 1, 1] + [1] * 354
    samples = [
        looked(5.0 * at, preemptions=count, backend=name)
        for at, count in enumerate(counts)
        for name in ("b0", "b1")
    ]
    answer = kv_memory(samples)

    assert answer.verdict is Verdict.YES
    assert figure(answer, "preemptions").value == 2 * 6


def test_waiting_beside_an_empty_cache_is_another_limit() -> None:
    """And that is said."""
    answer = kv_memory([looked(5.0 * at, waiting=4, kv_usage=0.2) for at in range(360)])

    assert answer.verdict is Verdict.NO
    assert "waits for something else" in answer.sentence


def test_a_full_cache_at_times_decides_nothing() -> None:
    """One look in ten, and nobody waits."""
    samples = [looked(5.0 * at, kv_usage=0.95 if at % 10 == 0 else 0.5) for at in range(360)]

    assert kv_memory(samples).verdict is Verdict.UNCLEAR


def test_a_short_time_tells_nothing() -> None:
    """Many looks within a minute show the same requests."""
    answer = kv_memory([looked(0.1 * at, waiting=3, kv_usage=1.0) for at in range(600)])

    assert answer.verdict is Verdict.UNKNOWN
    assert answer.needs == "20 stretches of 30 s under load; there are 2"


def test_an_engine_that_does_not_tell_is_unknown() -> None:
    """What it says at this moment is shown, and proves nothing."""
    samples = [looked(5.0 * at, kv_usage=None, waiting=at % 2) for at in range(360)]
    answer = kv_memory(samples, now=[looked(0.0, kv_usage=0.99, waiting=7)])

    assert answer.verdict is Verdict.UNKNOWN
    assert figure(answer, "b0 now: kv usage").value == 0.99
    assert figure(answer, "requests waiting at the engine").value == 0.5
    assert kv_memory([]).verdict is Verdict.UNKNOWN
