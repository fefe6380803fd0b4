"""The tables of `prefold report`, as any page can show them: no layout here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prefold.measurement.benefit.benefit import Benefit
from prefold.measurement.benefit.columns import FAILED, SAID
from prefold.measurement.benefit.compare import (
    MIN_CONVERSATIONS,
    Comparison,
    said_interval,
    said_signed,
)
from prefold.measurement.benefit.counterfactual import BLOCK_TOKENS, Counterfactual
from prefold.measurement.benefit.tally import Group
from prefold.proxy.report_numbers import UNKNOWN, count, number, percent, seconds

SHOWN = ("p50", "p90", "p99")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """`columns`: the first of `texts` hold words, the others numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1
    notes: Sequence[str] = ()


def sections(benefit: Benefit, *, full: bool = False) -> Iterator[Section]:
    """`full`: every metric of the profile."""
    if benefit.first_received is None:
        return
    groups = [benefit.total, *benefit.groups]
    yield _group_section(benefit, groups)
    yield _work_section(groups)
    if any(group.compression and group.compression.gated for group in groups):
        yield _gate_section(groups)
    yield _latency_section(benefit, groups, full)
    for comparison in benefit.comparisons:
        if comparison.differences:
            yield _difference_section(benefit, comparison)
        if comparison.curve is not None:
            yield _curve_section(comparison)
    if benefit.rates:
        yield _rate_section(benefit)
    if benefit.counterfactual is not None:
        yield _counterfactual_section(benefit.counterfactual)


def _group_section(benefit: Benefit, groups: Sequence[Group]) -> Section:
    columns = ["group", "requests", "convs", "failed", "saved", "share", "unknown", "prefill"]
    if benefit.limits_ms:
        columns.append("goodput")
    rows = []
    for group in groups:
        savings = group.savings
        prefill = UNKNOWN if savings.prefill is None else seconds(savings.prefill.seconds)
        row = [
            group.name,
            f"{group.requests:,}",
            f"{group.conversations:,}",
            f"{group.failed:,}",
            count(savings.saved_tokens),
            percent(savings.share),
            f"{savings.unreported_requests:,}",
            prefill,
        ]
        rows.append([*row, percent(group.goodput)] if benefit.limits_ms else row)
    notes = [
        "convs: conversations; saved: prompt tokens that engines reported as cached, share: of the"
        " prompts they reported on; unknown: answers without such a report; prefill: what that"
        " saved by the learned rates",
    ]
    if benefit.limits_ms:
        limits = ", ".join(f"{name} {ms:g} ms" for name, ms in benefit.limits_ms.items())
        notes.append(f"goodput: the share of requests answered within {limits}")
    if benefit.randomised:
        notes += [f"{group.name} was served by: {_listed(group.backends)}" for group in groups[1:]]
    if benefit.mixed_conversations:
        notes.append(
            f"{benefit.mixed_conversations:,} conversations were in more than one group: they are"
            " in these figures, and in no difference"
        )
    without = benefit.total.without_conversation
    if without:
        notes.append(f"{without:,} requests are of no known conversation: in no difference either")
    by = f" by {benefit.by}" if benefit.by else ""
    return Section(title=f"Requests and prefill{by}", columns=columns, rows=rows, notes=notes)


def _work_section(groups: Sequence[Group]) -> Section:
    rows = []
    for group in groups:
        compression, prediction = group.compression, group.prediction
        took = None if compression is None else compression.seconds
        rows.append(
            [
                group.name,
                count(group.output_tokens),
                count(None if compression is None else compression.requests),
                count(None if compression is None else compression.removed_tokens),
                UNKNOWN if took is None else seconds(took),
                count(None if prediction is None else prediction.expected_tokens),
                count(None if prediction is None else prediction.reported_tokens),
                count(None if prediction is None else prediction.error_tokens),
            ]
        )
    return Section(
        title="Answers, compression, and how well the cache was predicted",
        columns=("group", "output", "seen", "removed", "took", "expected", "reported", "error"),
        rows=rows,
        notes=(
            "output: tokens of answers; seen: requests that a compressor saw, tokens it removed and"
            " the time it took them; expected, reported: cached tokens of the same requests, error:"
            " the sum of their differences",
        ),
    )


def _gate_section(groups: Sequence[Group]) -> Section:
    return Section(
        title="What the gate of compression predicted",
        columns=("group", "shortened", "predicted gain", "actual gain"),
        rows=[
            [
                group.name,
                f"{gated.gated:,}",
                seconds(gated.predicted_gain_s),
                seconds(gated.actual_gain_s),
            ]
            for group in groups
            if (gated := group.compression) is not None and gated.gated
        ],
        notes=(
            "sums of TTFTs as they would have been without, which is a prediction in either column,"
            " less those with, as predicted and as measured; only arms tell the true difference",
        ),
    )


def _latency_section(benefit: Benefit, groups: Sequence[Group], full: bool) -> Section:
    wanted = [name for name in benefit.total.metrics if full or name in TERMINAL]
    rows = []
    for group in groups:
        for name in wanted:
            told = group.metrics[name]
            shown = (told.mean, *(told.percentiles[q] for q in SHOWN), told.max)
            rows.append([group.name, name, f"{told.count:,}", *map(number, shown)])
    definitions = [f"{name}: {benefit.total.metrics[name].definition}" for name in wanted]
    return Section(
        title=f"Times as {benefit.profile} defines them ({benefit.source}); sent = received here",
        columns=("group", "metric", "n", "mean", *SHOWN, "max"),
        rows=rows,
        texts=2,
        notes=definitions,
    )


TERMINAL = ("ttft_ms", "tpot_ms", "itl_ms", "gap_ms", "inter_chunk_ms", "e2e_ms")


def _difference_section(benefit: Benefit, comparison: Comparison) -> Section:
    rows = []
    for told in comparison.differences:
        scale = 100 if told.metric == FAILED else 1
        interval = told.interval
        sure = UNKNOWN if interval is None else "yes" if interval.effect else "no"
        rows.append(
            [
                told.metric,
                number(told.control * scale),
                number(told.treated * scale),
                UNKNOWN if interval is None else said_interval(told.metric, interval),
                sure,
                f"{told.conversations:,}",
            ]
        )
    lot = "drawn by lot" if benefit.randomised else "not drawn by lot"
    return Section(
        title=f"{comparison.treated} less {comparison.control} ({lot})",
        columns=("mean of", comparison.control, comparison.treated, "difference [bounds]", "sure",
                 "convs"),
        rows=rows,
        notes=(
            "bounds hold for all differences of this report together with 95 %, by resampling"
            f" conversations; none where the smaller group has fewer than {MIN_CONVERSATIONS}",
            *(
                f"{told.metric}: {told.definition}"
                for told in comparison.differences
                if told.metric in SAID
            ),
        ),
    )  # fmt: skip


def _curve_section(comparison: Comparison) -> Section:
    assert comparison.curve is not None
    rows = [
        [
            f"{one.start:,.0f} to {one.end:,.0f}",
            f"{one.control:,}",
            f"{one.treated:,}",
            f"{said_signed(one.gain_ms)} ms [{said_signed(one.low)}, {said_signed(one.high)}]",
        ]
        for one in comparison.curve.bins
    ]
    crossing = comparison.curve.crossing
    said = "no crossing in the data"
    if crossing is not None:
        said = (
            f"zero at {crossing.tokens:,.0f} uncached tokens"
            f" [{crossing.low:,.0f}, {crossing.high:,.0f}]"
        )
    return Section(
        title=f"Break-even of {comparison.treated}: TTFT gained against uncached tokens",
        columns=("uncached tokens", comparison.control, comparison.treated, "gain [bounds]"),
        rows=rows,
        notes=(said, "bounds hold for all bins together with 95 %; uncached: tokens of the prompt"
                     " as it came, times the share that no backend was believed to hold"),
    )  # fmt: skip


def _rate_section(benefit: Benefit) -> Section:
    return Section(
        title="Prefill as learned from times to first token against uncached tokens",
        columns=("backend", "tokens/s", "bounds", "overhead ms", "requests"),
        rows=[
            [
                name,
                f"{1 / rate.seconds_per_token:,.0f}",
                f"{1 / rate.high:,.0f} to {1 / rate.low:,.0f}",
                number(rate.overhead_s * 1000),
                f"{rate.requests:,}",
            ]
            for name, rate in benefit.rates.items()
        ],
    )


def _counterfactual_section(told: Counterfactual) -> Section:
    return Section(
        title="What other policies would have reused (simulated)",
        columns=("policy", "tokens reused", "share"),
        rows=[
            [shadow.policy, f"{shadow.reused_tokens:,}", percent(shadow.share)]
            for shadow in told.shadows
        ],
        notes=(
            f"{told.requests:,} requests of {told.prompt_tokens:,} prompt tokens,"
            f" {told.left_out:,} left out; a cache of {told.cache_tokens:,} tokens each, whole"
            f" blocks of {BLOCK_TOKENS} tokens: what is shared beyond them is not seen",
            f"as far as engines reported ({told.reported_requests:,} requests) they reused"
            f" {told.reported_tokens:,} tokens, where the simulation as routed has"
            f" {told.modelled_tokens:,}",
        ),
    )


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "none"
