"""A file that a command writes when it is done, looked at before it begins: a run of minutes must
not end with "no such folder".
"""

from __future__ import annotations

import os
from pathlib import Path

import click


class OutputFile(click.ParamType[str]):
    """Its path as it was given; - is standard output, where that is allowed."""

    name = "file"

    def __init__(self, *, dash: bool = True) -> None:
        self._dash = dash

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        text = str(value)
        if text == "-" and self._dash:
            return text
        path = Path(text)
        if path.is_dir():
            self.fail(f"{text} is a folder", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"there is no folder {path.parent}", param, ctx)
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            self.fail(f"{text} cannot be written", param, ctx)
        return text
