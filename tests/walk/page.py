"""A page of docs/guides as a reader follows it: what it has one type, and what it shows as output.

How a page is written, so that it can be checked:

- A fenced block whose language is `sh` is typed. One marked `sh install` makes the environment,
  and is typed only where that is asked for; `sh not-run` needs what is not here (GPUs, more time).
- A block `text` below one that is typed is all that it prints, standard error too.
- White space counts as one blank, so that it does not matter where a line was broken; the rule of
  a table is as long as it is.
- `…` stands for anything: a line of its own for lines that are left out, in a line for words.
- `~` before a number: it is what was printed here, and any other number will do.
- `text not-run` is output of a block that is not run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

FENCE = re.compile(r"^```(?P<kind>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
PORT = re.compile(r"(?<=127\.0\.0\.1:)\d+|(?<=port )\d+|(?<=port = )\d+")
NUMBER = r"[-+]?\d(?:[\d,.]*\d)?"
SPECIAL = re.compile(rf"…|~{NUMBER}|─+")
ANY = {"…": ".*?", "~": NUMBER, "─": "─+"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """`shown` is None where the page does not say what is printed; `line` counts from 1."""

    line: int
    commands: str
    is_install: bool
    shown: str | None


class PageError(Exception):
    """The page is not written as it has to be; the message says where."""


def steps(page: str) -> Iterator[Step]:
    """In their order. Raises PageError for a block of a kind that is not known, or an output that
    is of no commands."""
    typed: Step | None = None
    was_run = True
    for found in FENCE.finditer(page):
        line = page.count("\n", 0, found.start()) + 1
        kind, text = found["kind"].strip(), found["text"]
        match kind:
            case "sh" | "sh install":
                if typed is not None:
                    yield typed
                typed = Step(line=line, commands=text, is_install=kind == "sh install", shown=None)
                was_run = True
            case "sh not-run":
                was_run = False
            case "text":
                if typed is None or typed.shown is not None or not was_run:
                    raise PageError(f"line {line}: output of no commands")
                yield Step(
                    line=typed.line,
                    commands=typed.commands,
                    is_install=typed.is_install,
                    shown=text,
                )
                typed = None
            case "text not-run" if not was_run:
                pass
            case _:
                raise PageError(f"line {line}: a block of kind {kind!r}")
    if typed is not None:
        yield typed


def ports(page: str) -> set[str]:
    """That the page names."""
    return set(PORT.findall(page))


def with_ports(text: str, replaced: dict[str, str]) -> str:
    """The text with other ports than the page's."""
    return PORT.sub(lambda found: replaced.get(found[0], found[0]), text)


def agrees(shown: str, printed: str) -> bool:
    """Whether `printed` is what the page shows, by the rules above."""
    pattern = "".join(map(_pattern, shown.split()))
    return re.fullmatch(pattern, "".join(f"{word} " for word in printed.split())) is not None


def _pattern(word: str) -> str:
    """Of a word and the blank behind it; "…" alone may be no word at all."""
    if word == "…":
        return r"(?:\S+ )*?"
    made, end = [], 0
    for found in SPECIAL.finditer(word):
        made += [re.escape(word[end : found.start()]), ANY[found[0][0]]]
        end = found.end()
    return "".join(made) + re.escape(word[end:]) + " "
