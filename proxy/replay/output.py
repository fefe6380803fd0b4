"""What a replay found: a table for people, JSON for programs, and a line for each request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.table import Table

from prefold.measurement.definitions.formulas import decode_to_last, first
from prefold.measurement.definitions.profile import Profile
from prefold.measurement.definitions.profiles import PREFOLD
from prefold.measurement.definitions.summary import as_json, summarise
from prefold.measurement.intervals import Interval, paired_difference
from prefold.proxy.replay.drive import LATE_S
from prefold.proxy.replay.send import Sent

COLUMNS = ("p50", "p90", "p99")


def arm_json(sent: Sequence[Sent], profile: Profile, goodput: dict[str, float]) -> dict[str, Any]:
    """Figures of one arm, under the profile's definitions."""
    timelines = [one.timeline for one in sent]
    errors = Counter(timeline.error for timeline in timelines if timeline.error is not None)
    late = [one.late_s for one in sent if one.late_s > LATE_S]
    start = min(timeline.sent for timeline in timelines)
    last = max(timeline.sent for timeline in timelines)
    return {
        **as_json(summarise(profile, timelines)),
        "errors": dict(errors),
        "late": len(late),
        "latest_s": max(late, default=0.0),
        "achieved_requests_per_s": (len(sent) - 1) / (last - start) if last > start else None,
        "goodput": _goodput(sent, goodput),
    }


def _goodput(sent: Sequence[Sent], limits: dict[str, float]) -> float | None:
    """The share of all requests, failed ones too, within every limit (ms); None: no limits."""
    if not limits:
        return None
    good = 0
    for one in sent:
        view = PREFOLD.view(one.timeline)
        told = {"ttft": first(view), "tpot": decode_to_last(view), "e2e": _last(view.last_s)}
        within = all(not told[name] or told[name][0] * 1000 <= ms for name, ms in limits.items())
        good += within and one.timeline.error is None
    return good / len(sent)


def _last(seconds: float | None) -> Sequence[float]:
    return () if seconds is None else (seconds,)


def lines(sent: Iterable[Sent]) -> Iterator[bytes]:
    """A timeline each, as `prefold metrics` reads them, with what is known besides."""
    for one in sent:
        plain = msgspec.to_builtins(one.timeline)
        usage = plain.pop("usage") or None
        plain |= {
            "number": one.number,
            "target": one.target,
            "status": one.status,
            "late_s": one.late_s,
            "decision": one.decision,
        }
        if usage is not None:
            plain["usage"] = usage
        yield msgspec.json.encode(plain) + b"\n"


def paired(control: Sequence[Sent], treated: Sequence[Sent]) -> dict[str, Interval | None]:
    """Differences in ms of the same requests in two arms, those left out that failed in one."""
    others = {one.number: one for one in control}
    made: dict[str, dict[str, list[tuple[float, float]]]] = {"ttft_ms": {}, "e2e_ms": {}}
    for one in treated:
        other = others.get(one.number)
        if other is None or one.timeline.error or other.timeline.error:
            continue
        before, after = PREFOLD.view(other.timeline), PREFOLD.view(one.timeline)
        for name, one_s, other_s in (
            ("ttft_ms", after.first_s, before.first_s),
            ("e2e_ms", after.last_s, before.last_s),
        ):
            if one_s is not None and other_s is not None:
                made[name][str(one.number)] = [(other_s * 1000, one_s * 1000)]
    return {name: paired_difference(pairs) for name, pairs in made.items()}


def table(arms: dict[str, dict[str, Any]]) -> Table:
    told = next(iter(arms.values()))
    shown = Table(
        box=SIMPLE_HEAD, padding=(0, 0, 0, 1), title_justify="left", title=told["profile"]
    )
    shown.add_column("arm", no_wrap=True)
    shown.add_column("metric", no_wrap=True)
    for column in ("n", "mean", *COLUMNS, "max"):
        shown.add_column(column, justify="right", no_wrap=True)
    for name, figures in arms.items():
        for metric, spread in figures["metrics"].items():
            cells = (spread["mean"], *(spread[column] for column in COLUMNS), spread["max"])
            shown.add_row(name, metric, str(spread["count"]), *map(_said, cells))
            name = ""
    return shown


def remarks(name: str, figures: dict[str, Any]) -> str:
    window = figures["windows"][figures["window"]]
    hit = figures["cache_hit_rate"]
    cached = "cached tokens not reported" if hit is None else f"{hit:.1%} of prompt tokens cached"
    errors = ", ".join(f"{error}: {count}" for error, count in figures["errors"].items())
    goodput = figures["goodput"]
    said = [
        f"{name}: {figures['requests']} requests, {figures['failed']} failed"
        + (f" ({errors})" if errors else ""),
        f"{_said(window['requests_per_s'])} requests/s, {_said(window['output_tps'])} output and"
        f" {_said(window['input_tps'])} input tokens/s",
        cached,
    ]
    if figures["late"]:
        said.append(f"{figures['late']} sent late, at most by {figures['latest_s']:.2f} s")
    if goodput is not None:
        said.append(f"goodput {goodput:.1%}")
    return "; ".join(said)


def difference_said(control: str, treated: str, metric: str, found: Interval | None) -> str:
    if found is None:
        return f"{metric}, {treated} - {control}: not enough requests to say"
    verdict = "a difference" if found.effect else "no difference that can be told from chance"
    return (
        f"{metric}, {treated} - {control}: {found.difference:+.1f}"
        f" [{found.low:+.1f}, {found.high:+.1f}], {verdict}"
    )


def _said(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if abs(value) < 1000 else f"{value:,.0f}"
