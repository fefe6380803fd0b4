"""The report as one HTML page that loads nothing: words, charts, tables.

Charts are the dashboard's; their library is put into the page, where it is installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape

import msgspec

from prefold.measurement.benefit.benefit import Benefit
from prefold.proxy.dashboard.library import MISSING, STATIC, plotly_file
from prefold.proxy.report_sections import Section

LOADS_NOTHING = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
)
TIMES = {"ttft_ms": "TTFT (prefill)", "itl_ms": "ITL (decode)", "tpot_ms": "TPOT (decode)",
         "e2e_ms": "End to end"}  # fmt: skip


def page(
    title: str,
    sentences: Iterable[str],
    sections: Iterable[Section],
    charts: Iterable[str] = (),
) -> str:
    """`charts` is HTML."""
    body = [f"<h1>prefold report: {escape(title)}</h1>"]
    body += [f"<p>{escape(sentence)}</p>" for sentence in sentences]
    body += charts
    for section in sections:
        body += _section(section)
    style = (STATIC / "style.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{LOADS_NOTHING}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>prefold report</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def charts_of(made: Benefit) -> Iterator[str]:
    """Places, the figures that go there, and what draws them; nothing without requests. Raises
    OSError."""
    if made.first_received is None:
        return
    library = plotly_file()
    if library is None:
        yield f'<p class="note">{escape(MISSING[0].upper() + MISSING[1:])}.</p>'
        return
    yield '<div class="grid">'
    for name, caption in _places(made):
        yield (
            f"<figure><figcaption>{escape(caption)}</figcaption>"
            f'<div class="chart" data-chart="{name}"></div></figure>'
        )
    yield "</div>"
    told = msgspec.json.encode(made).decode().replace("<", "\\u003c")
    yield f'<script id="told" type="application/json">{told}</script>'
    for file in (library, STATIC / "charts.js", STATIC / "report.js"):
        yield f"<script>{_inline(file.read_text(encoding='utf-8'))}</script>"


def _places(made: Benefit) -> Iterator[tuple[str, str]]:
    yield "saved", "Prompt tokens, as engines report"
    for number, comparison in enumerate(made.comparisons):
        named = f"{comparison.treated} against {comparison.control}"
        if comparison.curve is not None:
            yield f"curve:{number}", f"Break-even of {named}"
        if any(one.interval is not None for one in comparison.differences):
            yield f"differences:{number}", f"Means of {named}, with bounds"
    for metric, caption in TIMES.items():
        told = made.total.metrics.get(metric)
        if told is not None and told.count:
            yield f"times:{metric}", caption
    if made.counterfactual is not None:
        yield "policies", "Tokens other policies would have reused (simulated)"


def _inline(script: str) -> str:
    """An element's end within a string or a comment would end the element."""
    return re.sub(r"</(?=script)", r"<\\/", script, flags=re.IGNORECASE)


def _section(section: Section) -> Iterator[str]:
    yield f"<h2>{escape(section.title)}</h2>"
    yield '<div class="scroll"><table>'
    yield _row("th", section.columns, section.texts)
    for row in section.rows:
        yield _row("td", row, section.texts)
    yield "</table></div>"
    for note in section.notes:
        yield f'<p class="note">{escape(note)}</p>'


def _row(tag: str, cells: Iterable[str], texts: int) -> str:
    made = "".join(
        f"<{tag}{_class(number < texts)}>{escape(cell)}</{tag}>"
        for number, cell in enumerate(cells)
    )
    return f"<tr>{made}</tr>"


def _class(is_text: bool) -> str:
    return ' class="text"' if is_text else ""
