"""What `prefold report` says in words: the answer before the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prefold.measurement.benefit.benefit import Benefit
from prefold.measurement.benefit.counterfactual import AS_ROUTED, BLOCK_TOKENS, Counterfactual
from prefold.measurement.benefit.tally import Savings
from prefold.proxy.report_numbers import moment, percent, seconds

COARSE = 0.5
"""Of what engines reported, the share below which a simulation is said to miss too much."""


def title(benefit: Benefit) -> str:
    first, last = benefit.first_received, benefit.last_received
    if first is None or last is None:
        return "no requests"
    return f"{benefit.total.requests:,} requests, received from {moment(first)} to {moment(last)}"


def sentences(benefit: Benefit) -> Iterator[str]:
    """The answer first."""
    if benefit.first_received is None:
        return
    yield _saved(benefit.total.savings)
    if benefit.counterfactual is not None:
        yield _otherwise(benefit.counterfactual)
    for comparison in benefit.comparisons:
        yield comparison.verdict + ("" if benefit.randomised else NOT_DRAWN)
    if benefit.slicing is not None and benefit.comparisons and benefit.slicing.unsettled:
        yield _unsettled(benefit.slicing.unsettled)


NOT_DRAWN = " (these groups were not drawn by lot: what was sent to them may make the difference)"


def _unsettled(arms: Sequence[str]) -> str:
    return (
        f"Caches had not settled when slices of {', '.join(arms)} began to count, so differences"
        " are partly of the arm before: a longer experiment.washout_s is needed."
    )


def _saved(savings: Savings) -> str:
    unknown = f"{savings.unreported_requests:,} answered requests reported nothing"
    if savings.saved_tokens is None or savings.prompt_tokens is None:
        return f"Saved prefill: unknown, since no engine reported cached tokens ({unknown})."
    said = (
        f"Saved {savings.saved_tokens:,} of {savings.prompt_tokens:,} prompt tokens"
        f" ({percent(savings.share)}), as reported by the engines for {savings.requests:,}"
        f" requests; {unknown}."
    )
    prefill = savings.prefill
    if prefill is None:
        return f"{said} In seconds it is not known: no backend that saved them has a learned rate."
    said += f" That is {seconds(prefill.seconds)} of prefill"
    said += f" [{seconds(prefill.low)}, {seconds(prefill.high)}], by the learned rates"
    if prefill.unpriced_tokens:
        said += f", {prefill.unpriced_tokens:,} tokens on backends without a rate left out"
    return f"{said}."


def _otherwise(told: Counterfactual) -> str:
    others = ", ".join(
        f"{shadow.policy} {shadow.reused_tokens:,}"
        for shadow in told.shadows
        if shadow.policy != AS_ROUTED
    )
    routed = told.shadows[0].reused_tokens
    if told.blind:
        return (
            f"What other policies would have reused is not known: nothing is shared in whole blocks"
            f" of {BLOCK_TOKENS} tokens, which is all that a ledger can tell of prompts."
        )
    said = (
        f"Simulated in whole blocks of {BLOCK_TOKENS} tokens, reused: {routed:,} tokens as routed;"
        f" it would have been: {others}."
    )
    if told.modelled_tokens < told.reported_tokens * COARSE:
        seen = told.modelled_tokens / told.reported_tokens
        said += (
            f" That sees only {seen:.0%} of what engines reported: too coarse for these prompts."
        )
    return said
