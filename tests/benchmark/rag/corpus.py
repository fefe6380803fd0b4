"""RAG prompts from public texts: which documents a question retrieves is simulated.

How often a document is retrieved follows Zipf's law, among all of a corpus or among those of its
topic; the order in which a retriever lists them differs from question to question, so it is random.
"""

from __future__ import annotations

import json
import lzma
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SYSTEM = "Answer the question from the documents, in a few words. If they do not say, say so."
CHUNK_WORDS = 180
"""Of a meeting's transcript, as RAG pipelines cut long texts."""


@dataclass(frozen=True, slots=True)
class Question:
    """`documents` as they were retrieved; `gold`: answers any of which is right; none: unknown."""

    documents: tuple[str, ...]
    text: str
    gold: tuple[str, ...] = ()


def chat(question: Question) -> list[dict[str, str]]:
    """Documents between the default delimiters, then the question."""
    listed = "\n".join(f"<document>\n{one}\n</document>" for one in question.documents)
    asked = f"{listed}\n\nQuestion: {question.text}"
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": asked}]


def shuffled(questions: Sequence[Question], seed: int) -> list[Question]:
    """The same documents, in another random order for each."""
    rng = random.Random(seed)
    return [
        Question(tuple(rng.sample(one.documents, len(one.documents))), one.text, one.gold)
        for one in questions
    ]


def passages(
    path: Path, count: int, *, corpus: int, top: int, seed: int, exponent: float = 1.0
) -> list[Question]:
    """`nq-open-oracle.jsonl` of lost-in-the-middle: a question's own passage, and `top` - 1 others
    by Zipf's law out of `corpus` passages. Those are easier to tell from the right one than what a
    retriever would find."""
    rng = random.Random(seed)
    rows = rng.sample(list(_lines(path)), corpus)
    texts = [f"{row['ctxs'][0]['title']}: {row['ctxs'][0]['text']}" for row in rows]
    weights = zipf(corpus, exponent)
    made = []
    for _ in range(count):
        gold = rng.choices(range(corpus), weights)[0]
        chosen = {gold}
        while len(chosen) < top:
            chosen.add(rng.choices(range(corpus), weights)[0])
        documents = [texts[number] for number in sorted(chosen)]
        rng.shuffle(documents)
        row = rows[gold]
        made.append(Question(tuple(documents), row["question"], tuple(row["answers"])))
    return made


def meetings(path: Path, count: int, *, top: int, seed: int) -> list[Question]:
    """`test.jsonl` of QMSum: a meeting by Zipf's law, then chunks of its transcript likewise, and
    one of the questions about it."""
    rng = random.Random(seed)
    rows = list(_lines(path))
    rng.shuffle(rows)
    chunked = [list(_chunks(row)) for row in rows]
    for chunks in chunked:
        rng.shuffle(chunks)  # the frequent ones are anywhere in the meeting
    made = []
    for _ in range(count):
        number = rng.choices(range(len(rows)), zipf(len(rows)))[0]
        chunks = chunked[number]
        chosen: set[int] = set()
        while len(chosen) < min(top, len(chunks)):
            chosen.add(rng.choices(range(len(chunks)), zipf(len(chunks)))[0])
        documents = [chunks[one] for one in sorted(chosen)]
        rng.shuffle(documents)
        asked = rng.choice(rows[number]["specific_query_list"])["query"]
        made.append(Question(tuple(documents), asked))
    return made


def zipf(count: int, exponent: float = 1.0) -> list[float]:
    """Weights; with exponent 0 all are alike."""
    return [rank**-exponent for rank in range(1, count + 1)]


def _chunks(row: dict[str, Any]) -> Iterator[str]:
    turns = row["meeting_transcripts"]
    words = " ".join(f"{turn['speaker']}: {turn['content']}" for turn in turns).split()
    for start in range(0, len(words), CHUNK_WORDS):
        yield " ".join(words[start : start + CHUNK_WORDS])


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with lzma.open(path, "rb") if path.suffix == ".xz" else path.open("rb") as file:
        for line in file:
            yield json.loads(line)
