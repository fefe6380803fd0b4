"""The demo's tables for people: what `--json` holds, in columns, with a ratio."""

from __future__ import annotations

from rich import box
from rich.table import Table

from prefold.proxy.demo.report import ArmReport, ratio

UNKNOWN = "unknown"
_TIMES = (
    ("TTFT", "ttft_ms", ("p50", "p90", "p99")),
    ("ITL", "itl_ms", ("p50", "p99")),
    ("end to end", "e2e_ms", ("p50", "p99")),
)
LEGEND = (
    "TTFT (prefill side): request sent to first chunk with content, as the client saw it. "
    "ITL (decode side): gaps between content chunks, pooled over requests. End to end: to the "
    "last content chunk. Percentiles by nearest rank. Saved tokens: the engines' own cached_tokens."
)


def comparison(title: str, round_robin: ArmReport, prefix: ArmReport) -> Table:
    """One row per number, one column per arm, and prefix / round robin."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("")
    for heading in ("round robin", "prefix", "ratio"):
        table.add_column(heading, justify="right")
    counts: tuple[tuple[str, float | None, float | None, bool], ...] = (
        ("requests", round_robin.requests, prefix.requests, False),
        ("errors", round_robin.errors, prefix.errors, False),
        ("prompt tokens", round_robin.prompt_tokens, prefix.prompt_tokens, True),
        (
            "prefill tokens computed",
            round_robin.prefill_tokens_computed,
            prefix.prefill_tokens_computed,
            True,
        ),
        (
            "prefill tokens saved",
            round_robin.prefill_tokens_saved,
            prefix.prefill_tokens_saved,
            True,
        ),
    )
    for label, base, ours, compared in counts:
        table.add_row(label, _count(base), _count(ours), _ratio(ours, base) if compared else "")
    for label, field, names in _TIMES:
        for name in names:
            base, ours = getattr(round_robin, field)[name], getattr(prefix, field)[name]
            table.add_row(f"{label} {name}", _ms(base), _ms(ours), _ratio(ours, base))
    for base_share, our_share in zip(round_robin.backends, prefix.backends, strict=True):
        table.add_row(
            f"{base_share.name}: requests", str(base_share.requests), str(our_share.requests), ""
        )
        base, ours = base_share.engine_prefill_tokens, our_share.engine_prefill_tokens
        table.add_row(
            f"{base_share.name}: prefill tokens", _count(base), _count(ours), _ratio(ours, base)
        )
    return table


def complaints(report: ArmReport) -> list[str]:
    """What a reader must know before believing an arm's numbers; usually nothing."""
    name = f"{report.cache} cache, {report.policy}"
    found = []
    if report.errors:
        kinds = ", ".join(f"{count} x {kind}" for kind, count in report.error_kinds.items())
        found.append(f"{name}: {report.errors} requests failed ({kinds}).")
    if report.prefill_tokens_computed is None:
        found.append(f"{name}: an engine reported no cached_tokens, so its totals are unknown.")
    if report.counters_agree is False:
        counted = sum(share.engine_prefill_tokens or 0 for share in report.backends)
        found.append(
            f"{name}: by usage {report.prefill_tokens_computed:,} prefill tokens were computed, "
            f"by the engines' own counters {counted:,}."
        )
    return found


def why_roomy_gains_less(tight: ArmReport, roomy: ArmReport) -> str:
    """`tight` and `roomy` are the round robin arms; said with their numbers."""
    return (
        f"Why less: with {roomy.slots} slots a backend has room for every tenant, so round robin "
        f"pays each system prompt once per backend and then hits too: it computed "
        f"{_count(roomy.prefill_tokens_computed)} prefill tokens here and "
        f"{_count(tight.prefill_tokens_computed)} with {tight.slots} slots. What is left of the "
        "gain is those first visits; it shrinks as the run gets longer."
    )


def _count(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def _ms(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f} ms"


def _ratio(ours: float | None, base: float | None) -> str:
    quotient = ratio(ours, base)
    return "" if quotient is None else f"{quotient:.2f}x"
