"""docs/report.md under test: figures and numbers there are those of the code."""

import re
from pathlib import Path

from prefold.measurement.benefit.breakeven import MAX_BINS, MIN_BIN
from prefold.measurement.benefit.columns import compared_names
from prefold.measurement.benefit.compare import MIN_CONVERSATIONS, MIN_ROUNDS, TAIL_DRAWS
from prefold.measurement.definitions.profiles import PROFILES
from prefold.measurement.intervals import REPETITIONS
from prefold.measurement.ledger.reader import GROUPS
from prefold.proxy.report_command import report

PAGE = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")


def test_the_figures_that_are_compared_are_documented() -> None:
    """Those of any profile, and no others."""
    documented = {
        name
        for row in re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }

    assert documented == {
        name
        for one in PROFILES.values()
        for by_time in (False, True)
        for name in compared_names(one, by_time=by_time)
    }


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    """Bounds of what is told."""
    words = {8: "eight"}

    assert f"fewer than {MIN_CONVERSATIONS} conversations" in PAGE
    assert f"up to {words[MAX_BINS]} bins" in PAGE
    assert f"Each bin holds {MIN_BIN} conversations" in PAGE
    assert f"2 x {TAIL_DRAWS} / (1 - confidence)" in PAGE
    assert f"fewer than {MIN_ROUNDS} rounds" in PAGE
    assert f"N of {MIN_ROUNDS} slices" in PAGE
    assert f"({REPETITIONS:,} times)" in PAGE


def test_options_and_groups_of_the_page_exist() -> None:
    """And every group is named."""
    options = {name for option in report.params for name in option.opts}
    prefixed = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", PAGE))

    assert prefixed <= options | {"--config"}
    for group in GROUPS:
        assert re.search(rf"\b{group}\b", PAGE)
