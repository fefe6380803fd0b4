"""The prompts of the compression demo: questions about documents, in four situations.

Pure and seeded, from the same texts as the other demo's workload.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from prefold.proxy.demo.workload import CHARS_PER_TOKEN, fill, products, rules

SYSTEM = "You answer customers' questions from the documents that you are given, in one sentence."
DOCUMENTS = 3
"""Of a prompt."""
FOLLOW_UP = "And who decides about that?"

# New to every cache; seen before, now with another question; a conversation's second turn; and as
# the second, but sent without compression the first time.
NEW = "new"
AGAIN = "seen before"
NEXT = "next turn"
CACHED = "cached whole"
SITUATIONS = (NEW, AGAIN, NEXT, CACHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`situation` is "" for one that only prepares another one; `mode`: asked for by header."""

    situation: str
    messages: tuple[dict[str, Any], ...]
    mode: str | None = None


def build_questions(*, seed: int, each: int, document_tokens: int) -> tuple[Question, ...]:
    """`each` of every situation, and what prepares them, in the order in which they are sent."""
    rng = random.Random(f"prefold compression demo {seed}")
    sets = [[_document(rng, document_tokens) for _ in range(DOCUMENTS)] for _ in range(2 * each)]
    ours, others = sets[:each], sets[each:]
    new = [_asked(documents, "What does it cost?") for documents in ours]
    again = [_asked(documents, "How long does that take?") for documents in ours]
    following = [
        (*first, {"role": "assistant", "content": "It depends."}, _user([], FOLLOW_UP))
        for first in new
    ]
    whole = [_asked(documents, "What does it cost?") for documents in others]
    warm = [_asked(documents, "How long does that take?") for documents in others]
    return (
        *(Question(situation=NEW, messages=one) for one in new),
        *(Question(situation=AGAIN, messages=one) for one in again),
        *(Question(situation=NEXT, messages=one) for one in following),
        *(Question(situation="", messages=one, mode="off") for one in whole),
        *(Question(situation=CACHED, messages=one) for one in warm),
    )


def _asked(documents: list[str], question: str) -> tuple[dict[str, Any], ...]:
    return {"role": "system", "content": SYSTEM}, _user(documents, question)


def _user(documents: list[str], question: str) -> dict[str, Any]:
    parts = [{"type": "text", "text": f"{text}\n\n"} for text in documents]
    return {"role": "user", "content": [*parts, {"type": "text", "text": question}]}


def _document(rng: random.Random, tokens: int) -> str:
    product = rng.choice(products())
    sentences: list[str] = []
    while sum(map(len, sentences)) < tokens * CHARS_PER_TOKEN:
        sentences.append(fill(rng.choice(rules()), product, rng))
    return f"Rules number {rng.randint(1000, 9999)}. " + " ".join(sentences)
