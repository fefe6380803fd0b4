"""Cases that are more than one request and its answer, each on a proxy process of its own."""

from __future__ import annotations

import pytest

from tests.wire.cases import Case, load_cases
from tests.wire.scenarios import SCENARIOS

CASES = [case for case in load_cases() if "scenario" in case.input]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
async def test_scenario(case: Case) -> None:
    """Nothing in it goes against its rule."""
    assert await SCENARIOS[case.input["scenario"]](case.input["given"]) == [], case.rule
