"""Who gets which arm, and which backends are for it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.proxy.arms import Arm, Arms, without
from prefold.proxy.openai import Body
from prefold.proxy.reload import backend_of
from prefold.proxy.settings import Backend, Health

CONVERSATIONS = range(10_000)


def unknown(body: Body, session: str | None, tenant: str, model: str) -> int | None:
    raise AssertionError("not asked here")


def arms(*given: Arm, secret: bytes = b"s") -> Arms:
    return Arms(secret, unknown, given)


def names(made: Arms, model: str = "m") -> list[str | None]:
    assigned = [made.assign(conversation, model) for conversation in CONVERSATIONS]
    return [None if arm is None else arm.name for arm in assigned]


@pytest.mark.parametrize("weights", [(1.0, 1.0), (0.05, 0.95), (3.0, 2.0, 5.0)])
def test_shares_are_those_of_the_weights(weights: tuple[float, ...]) -> None:
    """Within five standard deviations of a binomial count."""
    made = names(arms(*(Arm(f"a{n}", weight) for n, weight in enumerate(weights))))
    counts, size = Counter(made), len(made)

    for number, weight in enumerate(weights):
        share = weight / sum(weights)
        assert abs(counts[f"a{number}"] - share * size) < 5 * (share * (1 - share) * size) ** 0.5


@given(st.integers(0, 2**64 - 1), st.permutations([("a", 1.0), ("b", 2.0), ("c", 0.5)]))
def test_an_arm_is_a_conversations_own(conversation: int, ordered: list[tuple[str, float]]) -> None:
    """The same in every process of the deployment, in whatever order the arms are listed."""
    one = arms(Arm("a"), Arm("b", 2.0), Arm("c", 0.5)).assign(conversation, "m")
    other = arms(*(Arm(*named) for named in ordered)).assign(conversation, "m")

    assert one == other


def test_another_secret_is_another_assignment() -> None:
    """Nobody outside can tell, or choose, an arm by what a conversation begins with."""
    one, other = (names(arms(Arm("a"), Arm("b"), secret=secret)) for secret in (b"s", b"t"))
    same = sum(left == right for left, right in zip(one, other, strict=True))

    assert 0.45 < same / len(one) < 0.55


def test_other_weights_move_no_more_conversations_than_they_must() -> None:
    """From the arm that lost a share to the one that won it, and nobody else."""
    made = arms(Arm("a"), Arm("b"), Arm("c"))
    before = names(made)
    made.become([Arm("a", 2.0), Arm("b"), Arm("c")])
    after = names(made)
    moved = Counter((old, new) for old, new in zip(before, after, strict=True) if old != new)

    assert set(moved) == {("b", "a"), ("c", "a")}
    # From a third to a half.
    assert moved.total() / len(before) == pytest.approx(1 / 6, abs=0.02)


def test_no_arm_without_weight_and_none_for_other_models() -> None:
    """A weight of 0 takes an arm out; `models` says whose conversations take part."""
    made = arms(Arm("a", 0.0), Arm("b", 1.0, models=("m",)), Arm("c", 1.0, models=("n",)))

    assert set(names(made)) == {"b"}
    assert set(names(made, "n")) == {"c"}
    assert set(names(made, "o")) == {None}
    assert made.there
    assert not arms().there


def backend(name: str, **labels: str) -> Any:
    return backend_of(Backend(url="http://127.0.0.1:9", name=name, labels=labels), Health())


def test_backends_of_an_arm_have_all_its_labels() -> None:
    """Others are left out, beside those that were tried."""
    fleet = [
        backend("plain"),
        backend("fp8", precision="fp8"),
        backend("fp8-old", precision="fp8", gpu="A100"),
        backend("bf16", precision="bf16", gpu="H200"),
    ]
    arm = Arm("x", labels={"precision": "fp8"})

    assert without(arm, fleet, ["fp8-old"]) == {"plain", "bf16", "fp8-old"}
    assert without(Arm("y"), fleet, ["plain"]) == ["plain"]
    assert without(None, fleet, []) == []
