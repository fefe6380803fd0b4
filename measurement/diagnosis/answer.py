"""What an answer of a diagnosis is: a verdict, a plain sentence, and the figures it rests on."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    KNOWN = "known"  # to a question that is not answered with yes or no
    YES = "yes"
    NO = "no"
    UNCLEAR = "unclear"  # there is data; it does not decide
    UNKNOWN = "unknown"  # there is not: `needs` says what is missing


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """`unit`: "s", "tokens", "tokens/s", "share", "ratio", "requests" or what else `value` counts.
    `low` and `high`: 95 % bounds where there are any. `n`: of how many."""

    name: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    n: int | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    question: str
    verdict: Verdict
    sentence: str
    figures: list[Figure] = msgspec.field(default_factory=list)
    needs: str | None = None


def unknown(key: str, question: str, needs: str, *figures: Figure) -> Answer:
    return Answer(
        key=key,
        question=question,
        verdict=Verdict.UNKNOWN,
        sentence=f"unknown: needs {needs}",
        figures=list(figures),
        needs=needs,
    )


def above(low: float, high: float, limit: float) -> Verdict:
    """Whether what lies between these bounds is above the limit."""
    if low > limit:
        return Verdict.YES
    return Verdict.NO if high < limit else Verdict.UNCLEAR
