"""The tables of `prefold report`, as any page can show them: no layout here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prefold.measurement.benefit.benefit import Benefit
from prefold.measurement.benefit.columns import CACHED_SHARE, SAID, SHARES
from prefold.measurement.benefit.compare import (
    MIN_CONVERSATIONS,
    MIN_ROUNDS,
    Comparison,
    said_interval,
    said_signed,
)
from prefold.measurement.benefit.counterfactual import BLOCK_TOKENS, Counterfactual
from prefold.measurement.benefit.slices import Slicing
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
    if any(group.compression for group in groups):
        yield _compression_section(groups)
    if any(group.compression and group.compression.gate for group in groups):
        yield _gate_section(groups)
    yield _latency_section(benefit, groups, full)
    for comparison in benefit.comparisons:
        if comparison.differences:
            yield _difference_section(benefit, comparison)
        if comparison.curve is not None:
            yield _curve_section(comparison)
    if benefit.rates:
        yield _rate_section(benefit)
    if benefit.counterfactual is not None and not benefit.counterfactual.blind:
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
    if benefit.slicing is not None:
        notes += _slicing_notes(benefit.slicing)
    without = benefit.total.without_conversation
    if without and benefit.slicing is None:
        notes.append(f"{without:,} requests are of no known conversation: in no difference either")
    by = f" by {benefit.by}" if benefit.by else ""
    return Section(title=f"Requests and prefill{by}", columns=columns, rows=rows, notes=notes)


def _slicing_notes(told: Slicing) -> Iterator[str]:
    yield (
        f"time slices: {_listed(told.slices)}; rounds with one of each: {told.rounds:,};"
        f" {told.washout_requests:,} requests came during a wash-out and are in no arm"
    )
    if told.mixed_slices:
        yield (
            f"{told.mixed_slices:,} slices were of several arms, which were changed meanwhile: they"
            " are in these figures, and in no difference"
        )
    if told.unsliced_requests:
        yield (
            f"{told.unsliced_requests:,} requests are of arms that were drawn by conversation: they"
            " are in these figures, and in no difference; --since leaves them out"
        )
    settled = ", ".join(
        f"{arm} {said_interval(CACHED_SHARE, one)}"
        for arm, one in told.settling.items()
        if one is not None
    )
    yield (
        "whether caches had settled: cached share in the later half of slices less that in the"
        f" earlier half: {settled or f'not known, fewer than {MIN_ROUNDS} slices'}"
    )


def _work_section(groups: Sequence[Group]) -> Section:
    rows = []
    for group in groups:
        prediction = group.prediction
        rows.append(
            [
                group.name,
                count(group.output_tokens),
                count(None if prediction is None else prediction.expected_tokens),
                count(None if prediction is None else prediction.reported_tokens),
                count(None if prediction is None else prediction.error_tokens),
            ]
        )
    return Section(
        title="Answers, and how well the cache was predicted",
        columns=("group", "output", "expected", "reported", "error"),
        rows=rows,
        notes=(
            "output: tokens of answers; expected, reported: cached tokens of the same requests,"
            " error: the sum of their differences",
        ),
    )


def _compression_section(groups: Sequence[Group]) -> Section:
    return Section(
        title="What compression removed, and the time it took",
        columns=("group", "seen", "removed", "took", "waited", "compressor"),
        rows=[
            [
                group.name,
                f"{seen.requests:,}",
                f"{seen.removed_tokens:,}",
                *(
                    UNKNOWN if took is None else seconds(took)
                    for took in (seen.seconds, seen.waited_s, seen.spent_s)
                ),
            ]
            for group in groups
            if (seen := group.compression) is not None
        ],
        notes=(
            "seen: requests that it looked at; removed: tokens; took: what it added to their times"
            " to first token, all of them together, waited: of that, for a compressor; compressor:"
            " its seconds on their texts, also ahead of need",
        ),
    )


def _gate_section(groups: Sequence[Group]) -> Section:
    rows = []
    for group in groups:
        for reason, gate in (group.compression.gate if group.compression else {}).items():
            gains = (gate.predicted_gain_s, gate.actual_gain_s)
            rows.append(
                [
                    group.name,
                    reason,
                    f"{gate.requests:,}",
                    f"{gate.chosen:,}",
                    *(UNKNOWN if gain is None else seconds(gain) for gain in gains),
                    said_signed(gate.error_s * 1000),
                    number(gate.absolute_error_s * 1000),
                ]
            )
    return Section(
        title="What the gate of compression predicted",
        columns=("group", "reason", "n", "cut", "predicted gain", "actual gain", "off ms", "|off|"),
        rows=rows,
        texts=2,
        notes=(
            "cut: requests for which it chose a shorter form; their gains: sums of TTFTs as they"
            " would have been without, which is a prediction in either column, less those with, as"
            " predicted and as measured; only arms tell the true difference",
            "off: TTFT less that predicted for the form that was chosen, mean of all n; |off|: of"
            " its size",
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
        scale = 100 if told.metric in SHARES else 1
        interval = told.interval
        sure = UNKNOWN if interval is None else "yes" if interval.effect else "no"
        rows.append(
            [
                told.metric,
                number(told.control * scale),
                number(told.treated * scale),
                UNKNOWN if interval is None else said_interval(told.metric, interval),
                sure,
                f"{told.units:,}",
            ]
        )
    lot = "drawn by lot" if benefit.randomised else "not drawn by lot"
    return Section(
        title=f"{comparison.treated} less {comparison.control} ({lot})",
        columns=("mean of", comparison.control, comparison.treated, "difference [bounds]", "sure",
                 "convs" if benefit.slicing is None else "rounds"),
        rows=rows,
        notes=(
            "bounds hold for all differences of this report together with 95 %, by resampling"
            + (
                f" conversations; none where the smaller group has fewer than {MIN_CONVERSATIONS}"
                if benefit.slicing is None
                else f" rounds of slices; none where fewer than {MIN_ROUNDS} have one of both"
            ),
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
