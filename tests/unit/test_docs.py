"""Documentation under test: what is there is documented, and what is documented is there."""

import re
from pathlib import Path

from prefold.measurement.books import Books
from prefold.measurement.prometheus import Metrics
from prefold.proxy.routes import ROUTES

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference.md").read_text(encoding="utf-8")


def test_every_metric_is_documented_and_every_documented_metric_exists() -> None:
    """By the names that a scrape shows."""
    exposed = set(
        re.findall(
            r"^# TYPE (\S+)", Metrics(Books(), lambda: []).exposition().decode(), re.MULTILINE
        )
    )
    exposed = {name for name in exposed if not name.endswith("_created")}

    assert set(re.findall(r"^\| `(prefold_\w+)`", REFERENCE, re.MULTILINE)) == exposed


def test_every_path_is_documented_and_every_documented_path_exists() -> None:
    """In the order of the table."""
    documented = re.findall(r"^\| `(?:[A-Z]+ )?(/[^`]+)`", REFERENCE, re.MULTILINE)
    served = [
        re.sub(r"\{rest:[^}]*\}", "", route.path).replace("{model:.+}", "{model}")
        for route in ROUTES
    ]

    assert documented == served
