"""What an order of documents that shares most saves, and what it does to answers.

    python -m tests.benchmark.rag --passages FILE --meetings FILE [--parts orders,mocker,llama.cpp]
        [--questions N] [--json FILE]

The texts are not part of the repository. --passages is qa_data/nq-open-oracle.jsonl of
github.com/nelson-liu/lost-in-the-middle, --meetings is data/ALL/jsonl/test.jsonl of
github.com/Yale-LILY/QMSum; either may be compressed with xz. Retrieval is simulated (corpus.py).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from prefold.backends.embedded import ensure_engine
from prefold.proxy.demo.machine import describe_machine
from tests.benchmark.rag.corpus import Question, meetings, passages, shuffled
from tests.benchmark.rag.engines import Answered, ask_all, llama_cpp, mockers
from tests.benchmark.rag.orders import compare
from tests.support.answers import is_right
from tests.support.mocker import install

CAPACITIES = (20_000, 100_000, 10**9)
"""Words that the cache of the comparison without engines holds."""
MOCKER_CACHE = 131_072
"""Tokens of each of two mockers. Theirs are about bytes: a prompt has some 5,000."""
SEED = 1
PARTS = ("orders", "mocker", "llama.cpp")


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    # A mocker's chats are routed by their bytes, which is said for each of them otherwise.
    logging.getLogger("prefold").setLevel(logging.ERROR)
    console = Console(width=110, highlight=False)
    report: dict[str, Any] = {"machine": describe_machine()}
    if "orders" in options.parts:
        report["orders"] = _orders(options)
        _show_orders(console, report["orders"])
    if "mocker" in options.parts:
        report["mocker"] = asyncio.run(_mocker(options))
        _show_arms(console, "Two mockers of 131,072 tokens each", report["mocker"])
    if "llama.cpp" in options.parts:
        report["llama.cpp"] = asyncio.run(_llama_cpp(options))
        _show_arms(console, "Two llama.cpp engines of 4 slots", report["llama.cpp"])
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _orders(options: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    count = options.questions * 75
    workloads = {
        "passages, 5 of 300": passages(options.passages, count, corpus=300, top=5, seed=SEED),
        "passages, 10 of 1000": passages(options.passages, count, corpus=1000, top=10, seed=SEED),
        "meetings, 5 chunks": meetings(options.meetings, count, top=5, seed=SEED),
        "meetings, 10 chunks": meetings(options.meetings, count, top=10, seed=SEED),
    }
    workloads["passages, 10 of 1000, all alike"] = passages(
        options.passages, count, corpus=1000, top=10, seed=SEED, exponent=0.0
    )
    return {name: compare(questions, CAPACITIES, SEED) for name, questions in workloads.items()}


async def _mocker(options: argparse.Namespace) -> dict[str, Any]:
    python = await asyncio.to_thread(install)
    count = options.questions * 25
    workloads = {
        "passages, 10 of 1000": passages(options.passages, count, corpus=1000, top=10, seed=SEED),
        "meetings, 5 chunks": meetings(options.meetings, count, top=5, seed=SEED),
    }
    rows = {}
    for name, questions in workloads.items():
        for arm, ordered in (("as retrieved", False), ("ordered", True)):
            with tempfile.TemporaryDirectory() as folder:
                async with mockers(
                    python, Path(folder), engines=2, cache_tokens=MOCKER_CACHE, ordered=ordered
                ) as url:
                    answers = await ask_all(url, questions, model="mock", max_tokens=1)
            rows[f"{name}: {arm}"] = _tokens(answers)
    return rows


async def _llama_cpp(options: argparse.Namespace) -> dict[str, Any]:
    """Three times the same questions. Two arms have no order of ours: what differs between them
    is what any change of order does."""
    paths = await asyncio.to_thread(ensure_engine)
    asked = passages(options.passages, options.questions, corpus=300, top=5, seed=SEED)
    again = shuffled(asked, SEED + 1)
    arms: dict[str, tuple[list[Question], bool]] = {
        "as retrieved": (asked, False),
        "retrieved in another order": (again, False),
        "ordered": (asked, True),
    }
    rows: dict[str, Any] = {}
    first: list[Answered] = []
    for arm, (questions, ordered) in arms.items():
        async with llama_cpp(paths, engines=2, slots=4, ordered=ordered) as url:
            answers = await ask_all(url, questions, model="smollm2", max_tokens=16)
        first = first or answers
        rows[arm] = _tokens(answers) | _answers(answers, first, questions)
    return rows


def _tokens(answers: Sequence[Answered]) -> dict[str, Any]:
    prompt = sum(one.prompt_tokens for one in answers)
    cached = sum(one.cached_tokens for one in answers)
    prefill = [one.prefill_ms for one in answers if one.prefill_ms is not None]
    return {
        "requests": len(answers),
        "prompts with documents moved": sum(one.moved for one in answers),
        "prompt tokens": prompt,
        "cached tokens, reported": cached,
        "share cached": round(cached / prompt, 4),
        "prefill ms, mean": round(sum(prefill) / len(prefill), 1) if prefill else None,
    }


def _answers(
    answers: Sequence[Answered], first: Sequence[Answered], questions: Sequence[Question]
) -> dict[str, Any]:
    right = [is_right(one.text, asked.gold) for one, asked in zip(answers, questions, strict=True)]
    was = [is_right(one.text, asked.gold) for one, asked in zip(first, questions, strict=True)]
    other = sum(one.text != before.text for one, before in zip(answers, first, strict=True))
    share = sum(right) / len(right)
    return {
        "answers right": sum(right),
        "right, standard error": round(math.sqrt(share * (1 - share) / len(right)), 3),
        "answers that differ from the first": other,
        "right there, wrong here": sum(a and not b for a, b in zip(was, right, strict=True)),
        "wrong there, right here": sum(b and not a for a, b in zip(was, right, strict=True)),
    }


def _show_orders(console: Console, found: dict[str, dict[str, list[float]]]) -> None:
    table = Table(title="Share of document words reused, by order, without an engine")
    table.add_column("order")
    for name in found:
        table.add_column(name, justify="right")
    for order in next(iter(found.values())):
        cells = [
            " / ".join(f"{100 * share:.1f}" for share in shares[order]) for shares in found.values()
        ]
        table.add_row(order, *cells)
    console.print(table)
    console.print("% with a cache of 20,000 / 100,000 / any number of words\n")


def _show_arms(console: Console, title: str, rows: dict[str, dict[str, Any]]) -> None:
    table = Table(title=title)
    table.add_column("")
    for arm in rows:
        table.add_column(arm, justify="right")
    for figure in next(iter(rows.values())):
        table.add_row(figure, *(str(row[figure]) for row in rows.values()))
    console.print(table)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not set(names) <= set(PARTS):
        raise argparse.ArgumentTypeError(f"some of {','.join(PARTS)}")
    return names


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmark.rag",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--passages", type=Path, required=True, metavar="FILE")
    parser.add_argument("--meetings", type=Path, required=True, metavar="FILE")
    parser.add_argument("--parts", type=_names, default=PARTS, help=f"some of {','.join(PARTS)}")
    parser.add_argument(
        "--questions", type=int, default=40, help="to llama.cpp, which are the dearest; others more"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
