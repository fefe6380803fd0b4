"""`prefold compress`: what anyone sees of a compressor."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_tokenizer import tiny_bpe

TEXT = (
    "The committee of the town was asked by `main.py` and 12 people to close the old bridge over "
    "the river.\r\n\r\nIt was not safe for the people of the town, said the mayor of the town.\n"
)


def run(*arguments: str, given: bytes = TEXT.encode()) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "prefold.proxy.cli", "compress", *arguments],
        input=given,
        capture_output=True,
        timeout=100,
        check=False,
    )


def report(*arguments: str) -> dict[str, Any]:
    done = run("--json", *arguments)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_it_prints_what_is_left_and_nothing_else(tmp_path: Path) -> None:
    """From standard input or a file, line ends as they were."""
    file = tmp_path / "text.txt"
    file.write_bytes(TEXT.encode())

    left = run().stdout.decode()

    assert run(str(file), given=b"").stdout.decode() == left
    assert 0.3 * len(TEXT) < len(left) < 0.8 * len(TEXT)
    assert "\r\n\r\n" in left
    assert left.endswith("\n")
    assert all(needed in left for needed in ("`main.py`", "12", "not safe"))


def test_json_says_what_was_kept_at_what_cost() -> None:
    """Spans that give the text, words before and after, seconds, and whose work it is."""
    found = report("--rate", "0.4")

    assert "".join(TEXT[start:end] for start, end in found["kept"]) == found["text"]
    assert found["words"]["before"] == len(TEXT.split())
    assert found["words"]["after"] == len(found["text"].split())
    assert found["tokens"] is None, "words are no tokens"
    assert found["seconds"] > 0
    assert found["compressor"]["name"] == "lexical"


def test_with_a_tokenizer_tokens_are_counted(tmp_path: Path) -> None:
    """Before and after, and the rate is one of tokens."""
    file = tmp_path / "tokenizer.json"
    file.write_text(tiny_bpe().to_str(), encoding="utf-8")

    found = report("--tokenizer", str(file))

    before, after = found["tokens"]["before"], found["tokens"]["after"]
    assert before == len(tiny_bpe().encode(TEXT, add_special_tokens=False).ids)
    assert 0.3 < after / before < 0.7


def test_a_rate_of_one_and_the_null_compressor_keep_all() -> None:
    """Byte for byte."""
    assert run("--rate", "1").stdout == TEXT.encode()
    assert run("--compressor", "null").stdout == TEXT.encode()
    assert run(given=b"").stdout == b""


def test_users_choose_what_stays() -> None:
    """Markers, quotes, or no protection at all."""
    marked = TEXT.replace("by `main.py`", "[[by the way of it]]")

    assert (
        "[[by the way of it]]" in run("--keep", "[[", "]]", given=marked.encode()).stdout.decode()
    )
    assert report("--no-protection")["protected"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rate", "0"], b"rate"),
        (["--compressor", "nothing"], b"lexical"),
        (["--language", "xx"], b"'xx'"),
        (["--compressor", "llmlingua2"], b"llmlingua2"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: list[str], said: bytes) -> None:
    """In one line, without a traceback."""
    done = run(*arguments)

    assert done.returncode != 0
    assert said in done.stderr
    assert b"Traceback" not in done.stderr


def test_bytes_that_are_no_text_are_refused() -> None:
    """Rather than altered."""
    done = run(given=b"\xff\xfe")

    assert done.returncode == 1
    assert b"UTF-8" in done.stderr
