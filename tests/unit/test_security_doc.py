"""SECURITY.md under test: what it claims to be shown is shown by a test that exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_is_named_exists() -> None:
    """By file and function; a defence without one would be a claim."""
    named = re.findall(r"`(tests/\S+\.py)::(\w+)`", (ROOT / "SECURITY.md").read_text())
    missing = [
        f"{file}::{name}" for file, name in named if name not in _functions(ROOT / str(file))
    ]

    assert len(named) > 20
    assert not missing


def test_every_defence_names_a_test() -> None:
    """Each paragraph of that section, that is."""
    text = (ROOT / "SECURITY.md").read_text()
    section = text.partition("## What is defended")[2].partition("\n## ")[0]
    paragraphs = [part for part in section.split("\n\n") if part.startswith("**")]

    assert len(paragraphs) > 5
    for paragraph in paragraphs:
        assert "::test_" in paragraph, paragraph


def _functions(path: Path) -> set[str]:
    if not path.exists():
        return set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
