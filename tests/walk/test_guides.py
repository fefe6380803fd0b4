"""The pages of docs/guides, followed as they are printed, on real engines."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from tests.support.requirements import skip_or_fail
from tests.walk.page import Step
from tests.walk.shell import ROOT
from tests.walk.walk import walk

GUIDES = ROOT / "docs" / "guides"
PAGES = ("two-gpus.md", "rag.md", "compression-pays.md")

pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]


def test_every_guide_is_followed() -> None:
    """A new page is one that is walked."""
    assert {page.name for page in GUIDES.glob("*.md")} == set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_a_guide_prints_what_it_shows(page: str, tmp_path: Path, model_path: Path) -> None:
    """All of its commands end well, print what stands below them, and leave nothing running."""
    for program in ("bash", "curl", "git"):
        if shutil.which(program) is None:
            skip_or_fail(f"needs {program}: apt-get install {program}")
    if importlib.util.find_spec("wordfreq") is None:
        skip_or_fail("needs wordfreq: pip install 'prefold[compression-lexical]'")
    followed: list[Step] = [step for step, _ in walk(GUIDES / page, tmp_path)]

    assert any(step.shown is not None for step in followed)
