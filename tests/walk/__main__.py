"""A page of docs/guides, followed in a fresh copy: python -m tests.walk [--install] PAGE...

Shows what is printed, so that a page can be written from it; fails where the page has it otherwise.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.walk.shell import ShellError
from tests.walk.walk import Disagreement, walk


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.walk")
    parser.add_argument("--install", action="store_true", help="also what makes the environment")
    parser.add_argument("pages", nargs="+", type=Path)
    arguments = parser.parse_args()
    wrong = 0
    for page in arguments.pages:
        with tempfile.TemporaryDirectory() as folder:
            try:
                for step, printed in walk(page, Path(folder), installs=arguments.install):
                    print(
                        f"--- {page.name}, line {step.line}\n{step.commands}---\n{printed}",
                        flush=True,
                    )
            except (Disagreement, ShellError) as error:
                wrong += 1
                print(f"{page.name}: {error}", file=sys.stderr)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
