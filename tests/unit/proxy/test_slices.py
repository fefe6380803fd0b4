"""Which arm has the fleet, and when."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from prefold.proxy.arms import Arm
from prefold.proxy.slices import Slices

SLICE_S = 600.0
NOW = 1_800_000_000.0


def slices(
    *names: str, secret: bytes = b"s", slice_s: float = SLICE_S, washout_s: float = 60.0
) -> Slices:
    return Slices(secret, [Arm(name) for name in names], slice_s=slice_s, washout_s=washout_s)


def names(made: Slices, count: int, start: float = 0.0) -> list[str]:
    return [made.at(start + number * SLICE_S + 1).arm.name for number in range(count)]


@given(st.integers(2, 5), st.integers(0, 10**6))
def test_every_round_has_each_arm_once(arms: int, number: int) -> None:
    """Whatever the round; its slices say which round they are of."""
    made = slices(*(f"a{place}" for place in range(arms)))
    start = number * arms * SLICE_S
    seen = [made.at(start + place * SLICE_S) for place in range(arms)]

    assert {one.arm.name for one in seen} == {f"a{place}" for place in range(arms)}
    assert {one.round_start for one in seen} == {start}
    assert all(before.end == after.start for before, after in pairwise(seen))


@given(
    st.floats(0, 2**33),
    st.floats(1, 10**5).filter(lambda length: length > 1),
    st.permutations(["a", "b", "c"]),
)
def test_everybody_computes_the_same(moment: float, slice_s: float, ordered: list[str]) -> None:
    """In whatever order the arms are listed, and whatever was asked before; the slice holds the
    moment, to the rounding of floats."""
    asked = slices("a", "b", "c", slice_s=slice_s, washout_s=0.5)
    asked.at(NOW)
    one, other = asked.at(moment), slices(*ordered, slice_s=slice_s, washout_s=0.5).at(moment)

    assert one == other
    assert one.start - 1e-5 <= moment <= one.end + 1e-5
    assert one.settled == one.start + 0.5


def test_orders_are_drawn_by_lot() -> None:
    """Each order of three as often as the others, within five standard deviations; one round says
    nothing of the next."""
    made = names(slices("a", "b", "c"), 3 * 6000)
    orders = ["".join(made[at : at + 3]) for at in range(0, len(made), 3)]
    repeated = sum(before == after for before, after in pairwise(orders))

    assert len(Counter(orders)) == 6
    assert all(abs(count - 1000) < 5 * (1000 * 5 / 6) ** 0.5 for count in Counter(orders).values())
    assert abs(repeated - 1000) < 5 * (1000 * 5 / 6) ** 0.5


def test_another_secret_is_another_order() -> None:
    """So nobody can time what he sends for an arm."""
    one, other = (names(slices("a", "b", secret=secret), 2000) for secret in (b"s", b"t"))
    same = sum(left == right for left, right in zip(one, other, strict=True))

    assert 0.45 < same / len(one) < 0.55


def test_a_wash_out_begins_each_slice() -> None:
    """Up to it nothing counts, from it on everything does, to the slice's end."""
    moments = [NOW, NOW + 59.9, NOW + 60.0, NOW + 599.9, NOW + 600.0]
    told = iter(moments)
    made = Slices(
        b"s",
        [Arm("a"), Arm("b")],
        slice_s=SLICE_S,
        washout_s=60.0,
        wall=lambda: next(told),
    )

    assert NOW % SLICE_S == 0
    assert [made.now()[1] for _ in moments] == [False, False, True, True, False]


def test_other_arms_take_over_at_once() -> None:
    """The slice that was asked for last is not remembered with the arms that were."""
    made = slices("a", "b")
    made.at(NOW)
    made.become([Arm("c"), Arm("d")])

    assert made.at(NOW).arm.name in ("c", "d")
