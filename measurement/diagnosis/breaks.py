"""What breaks the prefix: where prompts of one template part, as a running proxy tells it."""

from __future__ import annotations

from math import sqrt

from prefold.measurement.diagnosis.answer import Answer, Figure, Verdict, unknown
from prefold.measurement.divergence.record import Kind
from prefold.measurement.divergence.tally import DivergenceReport, DivergenceRow

KEY = "prefix_breaks"
QUESTION = "What breaks your prefix?"
NEEDS = "--admin URL of a proxy with diagnosis.divergence = true"
MIN_LOOKED_AT = 100
MIN_REQUESTS = 10
WORTH_TOKENS = 64
"""Lost by each request; below, a block or two of the cache."""
RARE = 0.01
Z = 1.96
SHOWN = 5
NAMED = {
    Kind.TIMESTAMP: "a timestamp",
    Kind.UUID: "a UUID",
    Kind.NUMBER: "a number or an id",
    Kind.WHITESPACE: "white space",
    Kind.DOCUMENT_ORDER: "the order of documents",
    Kind.TOOL_ORDER: "the order of tools",
    Kind.OTHER: "other words",
    Kind.MESSAGE: "another message",
}


def prefix_breaks(report: DivergenceReport | None) -> Answer:
    if report is None or not report.looked_at:
        return unknown(KEY, QUESTION, NEEDS)
    looked_at = Figure(name="prompts compared", value=report.looked_at, unit="requests")
    if report.looked_at < MIN_LOOKED_AT:
        needed = f"{MIN_LOOKED_AT} prompts compared; there are {report.looked_at}"
        return unknown(KEY, QUESTION, needed, looked_at)
    breaks = [row for row in report.rows if _is_break(row)]
    often = [row for row in breaks if row.requests >= MIN_REQUESTS]
    figures = [looked_at, *(figure for row in breaks[:SHOWN] for figure in _figures(row, report))]
    if often:
        verdict = Verdict.KNOWN
        told = "; ".join(_told(row) for row in often[:SHOWN])
    else:
        share = sum(row.requests for row in breaks) / report.looked_at
        _, high = wilson(share, report.looked_at)
        verdict = Verdict.NO if high < RARE else Verdict.UNCLEAR
        told = (
            f"{'nothing' if not breaks else 'little'} that could be avoided was seen: in"
            f" {share:.1%} [at most {high:.1%}] of {report.looked_at:,} prompts"
        )
    return Answer(key=KEY, question=QUESTION, verdict=verdict, sentence=told, figures=figures)


def _is_break(row: DivergenceRow) -> bool:
    return row.kind is not Kind.MESSAGE and row.lost_tokens >= WORTH_TOKENS * row.requests


def _told(row: DivergenceRow) -> str:
    end = 2 * row.position if row.position else 16
    return (
        f"{NAMED[row.kind]} between tokens {row.position:,} and {end:,} parts {row.share:.0%} of"
        f" the prompts (template {row.template or 'others'}), and costs each about"
        f" {row.lost_tokens / row.requests:,.0f} tokens of reuse"
    )


def _figures(row: DivergenceRow, report: DivergenceReport) -> list[Figure]:
    low, high = wilson(row.share, report.looked_at)
    name = f"{row.template or 'others'} from token {row.position}: {row.kind}"
    return [
        Figure(name=name, value=row.share, unit="share", low=low, high=high, n=row.requests),
        Figure(name=f"{name}, lost", value=row.lost_tokens / row.requests, unit="tokens",
               n=row.requests),
    ]  # fmt: skip


def wilson(share: float, n: int) -> tuple[float, float]:
    """95 % bounds of a share (Wilson, 1927)."""
    middle = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    return max(middle - half, 0.0), min(middle + half, 1.0)
