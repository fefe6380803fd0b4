"""What a model answers from compressed documents, beside its answers from the originals.

Pure: prompts are made, answers are judged. Knows no model and no compressor.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prefold.measurement.intervals import paired_difference
from tests.benchmark.rag.corpus import Question
from tests.support.answers import is_right, plain

COLUMNS = (
    "prompts", "compressor", "rate", "words", "right", "less the original (95 %)",
    "lost", "gained", "same answer",
)  # fmt: skip


def passage_questions(
    rows: Sequence[Mapping[str, Any]], *, documents: int, seed: int
) -> list[Question]:
    """One for each row of NQ-open: its own passage among those of `documents` - 1 other rows, in
    random order. Such others are easier to tell from the right one than what a retriever finds."""
    rng = random.Random(seed)
    texts = [f"{row['ctxs'][0]['title']}: {row['ctxs'][0]['text']}" for row in rows]
    made = []
    for own, row in enumerate(rows):
        others = [text for text in dict.fromkeys(texts) if text != texts[own]]
        listed = [texts[own], *rng.sample(others, documents - 1)]
        rng.shuffle(listed)
        made.append(Question(tuple(listed), row["question"], tuple(row["answers"])))
    return made


def pair_questions(rows: Sequence[Mapping[str, Any]], *, pairs: int, seed: int) -> list[Question]:
    """One for each row of key-value retrieval: the key asked for and `pairs` - 1 others, as one
    document of a sentence each."""
    rng = random.Random(seed)
    made = []
    for row in rows:
        others = [pair for pair in row["ordered_kv_records"] if pair[0] != row["key"]]
        listed = [[row["key"], row["value"]], *rng.sample(others, pairs - 1)]
        rng.shuffle(listed)
        asked = f'what is the value of the key "{row["key"]}"'
        made.append(Question((pairs_text(listed),), asked, (row["value"],)))
    return made


def pairs_text(pairs: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"The value of the key {key} is {value}." for key, value in pairs)


def with_documents(questions: Sequence[Question], forms: Mapping[str, str]) -> list[Question]:
    """The same questions, each document in the form that `forms` has for it."""
    return [
        replace(one, documents=tuple(forms[text] for text in one.documents)) for one in questions
    ]


def words_of(questions: Sequence[Question]) -> int:
    """Of their documents."""
    return sum(len(text.split()) for one in questions for text in one.documents)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Answers from one form beside those from the original, as shares of all questions.

    `lost`: right from the original only; `gained`: right from this form only; `same`: equal texts,
    `plain`. The bounds are of `right` less the original's share, by a bootstrap over questions;
    None with fewer than 20.
    """

    right: float
    lost: float
    gained: float
    same: float
    bounds: tuple[float, float] | None


def compare(questions: Sequence[Question], before: list[str], after: list[str]) -> Comparison:
    judged = [
        (is_right(first, one.gold), is_right(second, one.gold))
        for one, first, second in zip(questions, before, after, strict=True)
    ]
    interval = paired_difference(
        {str(at): [(float(first), float(second))] for at, (first, second) in enumerate(judged)}
    )
    return Comparison(
        right=_share([second for _, second in judged]),
        lost=_share([first and not second for first, second in judged]),
        gained=_share([second and not first for first, second in judged]),
        same=_share([plain(a) == plain(b) for a, b in zip(before, after, strict=True)]),
        bounds=None if interval is None else (interval.low, interval.high),
    )


def cells(found: Comparison) -> tuple[str, ...]:
    """From the column `right` on."""
    difference = f"{found.gained - found.lost:+.2f}"
    if found.bounds is not None:
        difference += f" ({found.bounds[0]:+.2f} to {found.bounds[1]:+.2f})"
    figures = (found.lost, found.gained, found.same)
    return (f"{found.right:.2f}", difference, *(f"{share:.2f}" for share in figures))


def _share(hits: Sequence[bool]) -> float:
    return sum(hits) / len(hits)
