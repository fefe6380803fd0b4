"""What a test needs and may not find here: skipped with a reason, or failed where all must run."""

import os
from typing import NoReturn

import pytest


def skip_or_fail(reason: str) -> NoReturn:
    """`reason` says what is missing, with the line that installs it."""
    if os.environ.get("PREFOLD_REQUIRE_ALL") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
