"""What a compressor loses, on real texts: answers, keys, digits and names that are gone.

    python -m tests.compression.quality --passages nq_open_oracle.jsonl.xz \\
        --pairs kv_retrieval_75_first100.jsonl.xz --meetings qmsum_test.jsonl.xz

Passages are the gold paragraphs of NQ-open (nelson-liu/lost-in-the-middle), pairs its UUID keys and
values, meetings QMSum's. Of the answers that a text holds, it counts those that the compressed
text still holds, letter for letter, or all words of them. `hash` keeps words by a checksum: what
protection alone is worth. Prints figures only.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefold.compression.catalog import CompressorChoice, open_compressor
from prefold.compression.compressor import Compressor, Passage, compress_checked
from prefold.compression.protect import protect
from prefold.compression.scored import ScoredCompressor
from tests.support.hash_scorer import HashScorer

COLUMNS = ("texts", "compressor", "rate", "words", "answers", "their words", "digits", "names")
DIGITS = re.compile(r"\d+(?:[.,]\d+)*")
NAMES = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+")  # a capital after a word that ends no sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    text: str
    answers: tuple[str, ...]


def main() -> None:
    options = _arguments()
    print("| " + " | ".join(COLUMNS) + " |")
    print("|---" * len(COLUMNS) + "|")
    for name, cases in _sets(options):
        for compressor, protected in _compressors(options):
            for rate in options.rates:
                label = compressor.name + ("" if protected else ", no protection")
                print(
                    f"| {name} | {label} | {rate} | {_line(compressor, protected, cases, rate)} |"
                )


def _compressors(options: argparse.Namespace) -> Iterator[tuple[Compressor, bool]]:
    compressor = open_compressor(CompressorChoice(name=options.compressor, model=options.model))
    yield compressor, True
    yield compressor, False
    yield ScoredCompressor(HashScorer()), True


def _line(compressor: Compressor, protected: bool, cases: list[Case], rate: float) -> str:
    passages = [
        Passage(text=case.text, rate=rate, protected=protect(case.text) if protected else ())
        for case in cases
    ]
    results = compress_checked(compressor, passages)
    shorts = [result.text(case.text) for result, case in zip(results, cases, strict=True)]
    words = sum(len(short.split()) for short in shorts) / sum(len(c.text.split()) for c in cases)
    pairs = [
        (answer.lower(), short.lower())
        for case, short in zip(cases, shorts, strict=True)
        for answer in case.answers
        if answer.lower() in case.text.lower()
    ]
    return " | ".join(
        (
            f"{words:.2f}",
            _share([answer in short for answer, short in pairs]),
            _share([set(answer.split()) <= set(_words(short)) for answer, short in pairs]),
            _found(DIGITS, cases, shorts),
            _found(NAMES, cases, shorts),
        )
    )


def _words(text: str) -> list[str]:
    return text.split() + re.findall(r"[\w'-]+", text)


def _found(pattern: re.Pattern[str], cases: list[Case], shorts: list[str]) -> str:
    return _share(
        [
            one in short
            for case, short in zip(cases, shorts, strict=True)
            for one in pattern.findall(case.text)
        ]
    )


def _share(hits: list[bool]) -> str:
    return f"{sum(hits) / len(hits):.3f}" if hits else "-"


def _sets(options: argparse.Namespace) -> Iterator[tuple[str, list[Case]]]:
    if options.passages:
        rows = _rows(options.passages, options.limit)
        yield (
            "NQ passages",
            [Case(text=row["ctxs"][0]["text"], answers=tuple(row["answers"])) for row in rows],
        )
    if options.pairs:
        rows = _rows(options.pairs, options.limit)
        yield (
            "key-value pairs",
            [Case(text=_pairs_text(row), answers=(row["key"], row["value"])) for row in rows],
        )
    if options.meetings:
        rows = _rows(options.meetings, options.limit)
        yield "QMSum meetings", [Case(text=_meeting(row), answers=()) for row in rows]


def _pairs_text(row: dict[str, Any]) -> str:
    return "\n".join(
        f"The value of the key {key} is {value}." for key, value in row["ordered_kv_records"]
    )


def _meeting(row: dict[str, Any]) -> str:
    return "\n".join(f"{one['speaker']}: {one['content']}" for one in row["meeting_transcripts"])


def _rows(file: Path, limit: int) -> list[dict[str, Any]]:
    with lzma.open(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line, _ in zip(lines, range(limit), strict=False)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What a compressor loses, on real texts.")
    parser.add_argument("--passages", type=Path)
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--meetings", type=Path)
    parser.add_argument("--compressor", default="lexical")
    parser.add_argument("--model")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.7, 0.5, 0.3])
    parser.add_argument("--limit", type=int, default=3000, help="rows of each file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
