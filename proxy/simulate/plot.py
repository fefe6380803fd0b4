"""Hit rate and p90 TTFT against capacity: one HTML page with inline SVG, and nothing loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from math import ceil, floor, log10

from prefold.proxy.simulate.sweep import Run
from prefold.proxy.simulate.trace import Trace

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 620, 400, 60, 30, 20, 45
COLOURS = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#999999", "#994455",
           "#997700", "#6699cc", "#004488", "#aaaa00")  # fmt: skip
OURS = "#000000"

STYLE = """body{font:15px sans-serif;margin:2em;max-width:1300px}svg{background:#fff}
.charts{display:flex;flex-wrap:wrap;gap:1em}.key span{display:inline-block;margin-right:1.2em}
text{font:12px sans-serif}.grid{stroke:#ddd}.bound{stroke:#777;stroke-dasharray:6 4}"""


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to pixels, linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = log10(low), log10(high), log10(value)
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)


@dataclass(frozen=True, slots=True)
class Line:
    colour: str
    name: str
    points: Sequence[tuple[float, float]]
    width: float = 1.5


def as_html(trace: Trace, done: Sequence[Run]) -> str:
    """A pair of charts for each number of backends and load."""
    names = list(done[0].outcomes)
    ordered = sorted(done, key=lambda run: (*_group(run), run.fleet.engine.cache_tokens))
    charts = [_pair(list(runs), names) for _, runs in groupby(ordered, key=_group)]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>prefold simulate</title>'
        f"<style>{STYLE}</style><h1>{escape(trace.name)}</h1>"
        f"<p>{len(trace.requests):,} requests, {trace.prompt_tokens:,} prompt tokens. Time to"
        " first token is that of queue and prefill, simulated.</p>"
        f'<p class="key">{"".join(_key(name, names) for name in names)}</p>{"".join(charts)}</html>'
    )


def _group(run: Run) -> tuple[int, float]:
    return run.fleet.backends, round(run.load, 3)


def _colour(name: str, names: Sequence[str]) -> str:
    return OURS if name == "prefold" else COLOURS[names.index(name) % len(COLOURS)]


def _key(name: str, names: Sequence[str]) -> str:
    return f'<span><b style="color:{_colour(name, names)}">&#9632;</b> {escape(name)}</span>'


def _pair(runs: Sequence[Run], names: Sequence[str]) -> str:
    backends, load = _group(runs[0])
    bound = Line("", "bound_pooled", [(_capacity(run), run.bounds.pooled) for run in runs])
    hits = _lines(runs, names, lambda run, name: run.outcomes[name].figures.hit_rate)
    ttft = _lines(runs, names, lambda run, name: run.outcomes[name].figures.ttft_ms.p90 / 1000)
    return (
        f'<h2>{backends} backends, load {load:.2f}</h2><div class="charts">'
        f"{_chart('token hit rate (dashed: one pooled LRU cache)', hits, bound, log=False)}"
        f"{_chart('p90 TTFT, seconds', ttft, None, log=True)}</div>"
    )


def _capacity(run: Run) -> float:
    return run.fleet.engine.cache_tokens / 1000


def _lines(
    runs: Sequence[Run], names: Sequence[str], value: Callable[[Run, str], float]
) -> list[Line]:
    return [
        Line(
            _colour(name, names),
            name,
            [(_capacity(run), value(run, name)) for run in runs],
            3 if name == "prefold" else 1.5,
        )
        for name in names
    ]


def _chart(title: str, lines: Sequence[Line], bound: Line | None, *, log: bool) -> str:
    every = [point for line in (*lines, *([bound] if bound else [])) for point in line.points]
    xs, ys = [x for x, _ in every], [y for _, y in every]
    across = Scale(min(xs), max(xs), LEFT, WIDTH - RIGHT, log=True)
    low, high = _decades(ys) if log else (0.0, max(ys) * 1.05 or 1.0)
    up = Scale(low, high, HEIGHT - BOTTOM, TOP, log=log)
    parts = [f'<text x="{LEFT}" y="18">{escape(title)}</text>']
    parts += [_level(up, value, log=log) for value in _levels(low, high, log=log)]
    parts += [_tick(across(x), x) for x in sorted(set(xs))]
    parts.append(f'<text x="{WIDTH / 2:.0f}" y="{HEIGHT - 6}">cache of each backend, thousands of'
                 " tokens</text>")  # fmt: skip
    if bound is not None:
        parts.append(f'<polyline class="bound" fill="none" points="{_path(bound, across, up)}"/>')
    parts += [_drawn(line, across, up) for line in lines]
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def _decades(values: Iterable[float]) -> tuple[float, float]:
    """Whole decades around the values above zero."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = floor(log10(min(positive))), ceil(log10(max(positive)))
    return 10.0**low, 10.0 ** max(high, low + 1)


def _levels(low: float, high: float, *, log: bool) -> list[float]:
    if log:
        return [10.0**power for power in range(round(log10(low)), round(log10(high)) + 1)]
    return [high * share / 5 for share in range(6)]


def _level(up: Scale, value: float, *, log: bool) -> str:
    y = up(value)
    label = f"{value:g}" if log else f"{value:.0%}"
    return (
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    )


def _tick(x: float, value: float) -> str:
    return f'<text x="{x:.1f}" y="{HEIGHT - 25}" text-anchor="middle">{value:,.0f}</text>'


def _path(line: Line, across: Scale, up: Scale) -> str:
    return " ".join(f"{across(x):.1f},{up(max(y, up.low)):.1f}" for x, y in line.points)


def _drawn(line: Line, across: Scale, up: Scale) -> str:
    dots = "".join(
        f'<circle cx="{across(x):.1f}" cy="{up(max(y, up.low)):.1f}" r="{line.width + 1}"'
        f' fill="{line.colour}"><title>{escape(line.name)}: {y:.4g}</title></circle>'
        for x, y in line.points
    )
    return (
        f'<polyline fill="none" stroke="{line.colour}" stroke-width="{line.width}"'
        f' points="{_path(line, across, up)}"/>{dots}'
    )
