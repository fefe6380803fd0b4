from __future__ import annotations

import numpy as np
import pytest

from prefold.measurement.intervals import (
    MAX_DRAWN,
    MIN_CLUSTERS,
    Sums,
    difference,
    difference_of_rounds,
    difference_of_sums,
    paired_difference,
    student,
)

Clusters = dict[str, list[float]]


def conversations(
    random: np.random.Generator, number: int, mean: float, spread: float = 50.0
) -> Clusters:
    """Requests of one conversation are alike: each has its own mean."""
    made = {}
    for name in range(number):
        own = random.normal(mean, spread)
        made[str(name)] = list(random.normal(own, 5.0, size=random.integers(1, 8)))
    return made


def test_a_difference_that_is_there_is_found_with_its_size() -> None:
    """100 ms less, with the true value inside the interval."""
    random = np.random.default_rng(1)
    found = difference(conversations(random, 200, 500), conversations(random, 200, 400))

    assert found is not None
    assert found.effect
    assert found.low < -100 < found.high < 0


def test_equal_arms_rarely_seem_to_differ() -> None:
    """At 95 %, of 100 comparisons of an arm with itself at least 90 show nothing."""
    random = np.random.default_rng(2)
    quiet = 0
    for seed in range(100):
        found = difference(
            conversations(random, 60, 500),
            conversations(random, 60, 500),
            seed=seed,
            repetitions=400,
        )
        assert found is not None
        quiet += not found.effect

    assert quiet >= 90


def test_conversations_and_not_requests_are_resampled() -> None:
    """Two hundred requests of twenty conversations are twenty observations: taking each for its own
    would make the interval several times too narrow."""
    random = np.random.default_rng(3)
    one = {str(n): [random.normal(500, 50)] * 10 for n in range(20)}
    other = {str(n): [random.normal(500, 50)] * 10 for n in range(20)}
    apart = [
        {f"{name}-{place}": [value] for name, values in side.items() for place, value in
         enumerate(values)}
        for side in (one, other)
    ]  # fmt: skip
    right, wrong = difference(one, other), difference(apart[0], apart[1])

    assert right is not None
    assert wrong is not None
    assert right.high - right.low > 2.5 * (wrong.high - wrong.low)


def test_pairs_cancel_what_both_have_in_common() -> None:
    """The same request is slow in both arms: only its difference counts."""
    random = np.random.default_rng(4)
    pairs = {}
    for name in range(40):
        slow = random.normal(1000, 300)
        pairs[str(name)] = [(slow, slow - 10 + random.normal(0, 2))]
    found = paired_difference(pairs)

    assert found is not None
    assert found.low < -10 < found.high
    assert found.high - found.low < 3


def test_too_few_to_say() -> None:
    """Nothing is claimed from a handful."""
    few: Clusters = {str(name): [1.0] for name in range(MIN_CLUSTERS - 1)}
    enough: Clusters = {str(name): [1.0] for name in range(MIN_CLUSTERS)}

    assert difference(few, enough) is None
    assert paired_difference({"1": [(1.0, 2.0)]}) is None
    found = difference(enough, enough)
    assert found is not None
    assert found.difference == pytest.approx(0.0)


def test_bounds_of_many_clusters_are_those_of_their_standard_error() -> None:
    """However few resamples fit into the memory at a time."""
    random = np.random.default_rng(1)
    sides = [
        Sums(random.normal(mean, 1.0, MAX_DRAWN // 100), np.ones(MAX_DRAWN // 100))
        for mean in (0.0, 0.1)
    ]
    found = difference_of_sums(*sides, repetitions=200)
    assert found is not None
    error = np.sqrt(2 / (MAX_DRAWN // 100))

    assert found.difference == pytest.approx(0.1, abs=4 * error)
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * error, rel=0.25)


def rounds(seed: int, size: int, drift: float) -> tuple[Sums, Sums]:
    """Ten values a side and round, treated 5 higher; `drift` moves both sides of a round alike."""
    random = np.random.default_rng(seed)
    common = random.normal(0, drift, size) if drift else np.zeros(size)
    own = random.normal(0, 1, (2, size))
    counts = np.full(size, 10.0)
    return Sums((100 + common + own[0]) * 10, counts), Sums((105 + common + own[1]) * 10, counts)


def test_what_rounds_have_in_common_is_in_no_bound() -> None:
    """Drift that is 100 times the noise: rounds are told as surely as without it; sides that are
    drawn apart tell nothing."""
    calm, drifting = (difference_of_rounds(*rounds_of) for rounds_of in (CALM, DRIFTING))
    apart = difference_of_sums(*DRIFTING)

    assert calm is not None
    assert drifting is not None
    assert apart is not None
    assert calm.low < 5 < calm.high
    assert drifting.low < 5 < drifting.high
    assert drifting.effect
    assert not apart.effect
    assert drifting.high - drifting.low < 2 * (calm.high - calm.low)


CALM, DRIFTING = rounds(1, 40, 0.0), rounds(2, 40, 100.0)


def test_bounds_of_rounds_are_those_of_students_paired_test() -> None:
    """Where all rounds are of one size the means of rounds are all there is to know; to the noise
    of 2,000 resamples."""
    control, treated = rounds(3, MIN_CLUSTERS, 10.0)
    gains = (treated.sums - control.sums) / 10
    reach = student(0.975, MIN_CLUSTERS - 1) * gains.std(ddof=1) / MIN_CLUSTERS**0.5
    found = difference_of_rounds(control, treated)

    assert found is not None
    assert found.difference == pytest.approx(gains.mean())
    assert (found.high - found.low) / 2 == pytest.approx(reach, rel=0.06)
    assert found.clusters == MIN_CLUSTERS
    assert difference_of_rounds(*rounds(3, MIN_CLUSTERS - 1, 10.0)) is None


@pytest.mark.parametrize(
    ("level", "freedom", "table"),
    [
        (0.975, 10, 2.228),
        (0.975, 29, 2.045),
        (0.995, 29, 2.756),
        (0.995, 60, 2.660),
        (0.9995, 30, 3.646),
    ],
)
def test_quantiles_of_student_are_those_of_the_tables(
    level: float, freedom: int, table: float
) -> None:
    """To three digits."""
    assert student(level, freedom) == pytest.approx(table, abs=0.003)
