"""Many timelines under one profile: the figures of a run, each with whose definition it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import msgspec

from prefold.measurement.definitions.profile import Metric, Profile, View
from prefold.measurement.definitions.timeline import Timeline

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9)


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Of samples, in `unit`. Percentiles are interpolated linearly between ranks (numpy's default);
    `std` is the population's. All None where there is no sample."""

    unit: str
    definition: str
    count: int
    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    percentiles: dict[str, float | None]


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Rates over one way to say how long a run was. None: no time passed, or tokens are unknown."""

    seconds: float
    requests_per_s: float | None
    output_tps: float | None
    input_tps: float | None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """`window` is the one of `windows` that the tool itself divides by. Only requests that did not
    fail are in the figures."""

    profile: str
    source: str
    remarks: tuple[str, ...]
    requests: int
    failed: int
    prompt_tokens: int | None
    cached_tokens: int | None
    """None: not reported by all."""
    cache_hit_rate: float | None
    output_tokens: int | None
    window: str
    windows: dict[str, Window]
    metrics: dict[str, Spread]


def summarise(profile: Profile, timelines: Sequence[Timeline]) -> Summary:
    good = [timeline for timeline in timelines if timeline.error is None]
    views = [profile.view(timeline) for timeline in good]
    prompt, output = _total([v.prompt_tokens for v in views]), _total(_outputs(views))
    cached = _total([t.usage.cached if t.usage is not None else None for t in good])
    windows = {
        "to_last_content": _window(views, lambda view: view.last_s, prompt, output),
        "whole_run": _window(views, lambda view: view.body_s, prompt, output),
    }
    return Summary(
        profile=profile.label,
        source=profile.source,
        remarks=profile.remarks,
        requests=len(good),
        failed=len(timelines) - len(good),
        prompt_tokens=prompt,
        cached_tokens=cached,
        cache_hit_rate=cached / prompt if cached is not None and prompt else None,
        output_tokens=output,
        window=profile.window,
        windows=windows,
        metrics={metric.name: _spread(metric, views) for metric in profile.metrics},
    )


def _outputs(views: Sequence[View]) -> list[int | None]:
    return [view.output_tokens for view in views]


def _total(counts: Sequence[int | None]) -> int | None:
    """None if one is not known: a sum of some would look like all."""
    known = [count for count in counts if count is not None]
    return sum(known) if counts and len(known) == len(counts) else None


def _window(
    views: Sequence[View],
    end_s: Callable[[View], float | None],
    prompt: int | None,
    output: int | None,
) -> Window:
    ends = [v.timeline.sent + seconds for v in views if (seconds := end_s(v)) is not None]
    seconds = max(ends) - min(view.timeline.sent for view in views) if ends else 0.0

    def rate(count: int | None) -> float | None:
        return count / seconds if count is not None and seconds > 0 else None

    return Window(
        seconds=seconds,
        requests_per_s=rate(len(views)),
        output_tps=rate(output),
        input_tps=rate(prompt),
    )


def _spread(metric: Metric, views: Sequence[View]) -> Spread:
    scale = 1000.0 if metric.unit == "ms" else 1.0
    samples: list[float] = []
    for view in views:
        times = 1 if metric.weight is None else metric.weight(view)
        for sample in metric.of(view):
            samples.extend(repeat(sample * scale, times))
    return spread(samples, unit=metric.unit, definition=metric.definition)


def spread(samples: Sequence[float], *, unit: str, definition: str) -> Spread:
    ordered = sorted(samples)
    mean = math.fsum(ordered) / len(ordered) if ordered else None
    std = None
    if mean is not None:
        std = math.sqrt(math.fsum((sample - mean) ** 2 for sample in ordered) / len(ordered))
    return Spread(
        unit=unit,
        definition=definition,
        count=len(ordered),
        mean=mean,
        std=std,
        min=ordered[0] if ordered else None,
        max=ordered[-1] if ordered else None,
        percentiles={f"p{q}": percentile(ordered, q) for q in PERCENTILES},
    )


def percentile(ordered: Sequence[float], q: float) -> float | None:
    """Of ascending samples, 0 <= q <= 100, interpolated linearly; None without any."""
    if not ordered:
        return None
    rank = (len(ordered) - 1) * q / 100
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)


def as_json(summary: Summary) -> dict[str, Any]:
    """Percentiles lie beside mean, min and max, as most tools write them."""
    plain: dict[str, Any] = msgspec.to_builtins(summary)
    for metric in plain["metrics"].values():
        metric.update(metric.pop("percentiles"))
    return plain
