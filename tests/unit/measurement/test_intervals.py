from __future__ import annotations

import numpy as np
import pytest

from prefold.measurement.intervals import (
    MAX_DRAWN,
    MIN_CLUSTERS,
    Sums,
    difference,
    difference_of_sums,
    paired_difference,
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
