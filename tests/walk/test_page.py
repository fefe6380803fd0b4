"""How a guide is read and compared, and that one that rots is found out."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.walk.page import PageError, agrees, ports, steps, with_ports
from tests.walk.shell import ShellError, left_running
from tests.walk.walk import Disagreement, walk


def page(*blocks: tuple[str, str]) -> str:
    return "\n\nWords.\n\n".join(f"```{kind}\n{text}\n```" for kind, text in blocks) + "\n"


def test_an_output_is_of_the_commands_above_it() -> None:
    """Commands may go without; what is not run is not among them."""
    found = list(
        steps(
            page(
                ("sh install", "pip"),
                ("sh", "one"),
                ("text", "1"),
                ("sh not-run", "gpu"),
                ("text not-run", "fast"),
                ("sh", "two"),
            )
        )
    )

    assert [(step.commands, step.is_install, step.shown) for step in found] == [
        ("pip\n", True, None),
        ("one\n", False, "1\n"),
        ("two\n", False, None),
    ]
    assert [step.line for step in found] == [1, 7, 31]


@pytest.mark.parametrize(
    "blocks",
    [
        [("text", "1")],
        [("sh", "one"), ("text", "1"), ("text", "2")],
        [("sh", "one"), ("sh not-run", "gpu"), ("text", "1")],
        [("sh", "one"), ("text not-run", "1")],
        [("bash", "one")],
    ],
)
def test_a_block_that_would_not_be_checked_is_an_error(blocks: list[tuple[str, str]]) -> None:
    """A slip in a fence must not let a block pass unread."""
    with pytest.raises(PageError, match=r"^line \d+: "):
        list(steps(page(*blocks)))


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a b", "a\n   b\n"),
        ("took ~12 ms", "took 1,234.5 ms"),
        ("[~-1.5, ~+3]", "[+2.25, -1]"),
        ("first\n…\nlast", "first\nand\nmore\nlast"),
        ("first\n…\nlast", "first\nlast"),
        ("…\nlast", "last"),
        ("first\n…", "first"),
        ("from …, ~3 of 50", "from here to\nthere, 17 of 50"),
        ("a\n───\n~1", "a\n─────\n1,234"),
        ("(a) 1.5 | *", "(a) 1.5 | *"),
    ],
)
def test_what_may_differ_may(shown: str, printed: str) -> None:
    """White space, marked numbers and what is left out."""
    assert agrees(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a b", "ab"),
        ("a b", "a b c"),
        ("took ~12 ms", "took long ms"),
        ("took 12 ms", "took 13 ms"),
        ("~1 of 50", "1 of 20"),
        ("first\n…\nlast", "last\nfirst"),
        ("first\n…\nlast", "firstlast"),
        ("first\n…", "first2"),
        ("…\nlast", "at last2"),
        ("a.c", "abc"),
        ("a", ""),
    ],
)
def test_everything_else_may_not(shown: str, printed: str) -> None:
    """A figure that is not marked is a promise."""
    assert not agrees(shown, printed)


def test_ports_are_exchanged_where_they_are_named() -> None:
    """In addresses, options and settings, not in other numbers."""
    text = "serve --port 8010 --backend http://127.0.0.1:8080\nport = 8000\n8080 tokens"

    assert ports(text) == {"8010", "8080", "8000"}
    assert with_ports(text, {"8010": "1", "8080": "2", "8000": "3"}) == (
        "serve --port 1 --backend http://127.0.0.1:2\nport = 3\n8080 tokens"
    )


def followed(tmp_path: Path, *blocks: tuple[str, str]) -> list[str]:
    file = tmp_path / "page.md"
    file.write_text(page(*blocks), encoding="utf-8")
    return [printed for _, printed in walk(file, tmp_path)]


def test_a_walk_is_one_shell_in_a_copy(tmp_path: Path) -> None:
    """Files, variables and processes stay; ports are the page's again in what is told."""
    printed = followed(
        tmp_path,
        ("sh install", "exit 1"),
        ("sh", "head -1 pyproject.toml\nNAME=prefold\nsleep 60 &\necho listens on 127.0.0.1:8000"),
        ("text", "[build-system]\nlistens on 127.0.0.1:8000"),
        ("sh", "echo $NAME >&2\nkill $(jobs -p)\nwait"),
        ("text", "prefold"),
    )

    assert printed == ["[build-system]\nlistens on 127.0.0.1:8000\n", "prefold\n"]


def test_another_output_is_found_out(tmp_path: Path) -> None:
    """With both, and the line of the commands."""
    with pytest.raises(Disagreement, match=r"line 1 shows\n2\n\nbut there was printed\n1\n"):
        followed(tmp_path, ("sh", "echo 1"), ("text", "2"))


def test_a_command_that_fails_ends_the_walk(tmp_path: Path) -> None:
    """Though others follow; what it said is told."""
    with pytest.raises(ShellError, match=r"status 1:\n.*nowhere"):
        followed(tmp_path, ("sh", "cat nowhere\necho more"), ("sh", "echo not reached"))


def test_what_a_page_leaves_running_is_told_and_ended(tmp_path: Path) -> None:
    """A reader would be left with it."""
    with pytest.raises(Disagreement, match="1 processes were left running"):
        followed(tmp_path, ("sh", "sleep 60 &\necho $! > ../pid"))

    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10  # it is dead; its new parent may not have noticed
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        assert pid not in left_running(pid)
