"""The report as one HTML page that loads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from prefold.proxy.report_document import Section

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .3rem; }
div { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .8rem .2rem 0; text-align: right; white-space: nowrap; }
th { border-bottom: 1px solid; font-weight: 600; }
.text { text-align: left; } .note { font-size: .85rem; opacity: .75; margin: .1rem 0; }
""".strip()


def page(title: str, sentences: Iterable[str], sections: Iterable[Section]) -> str:
    body = [f"<h1>prefold report: {escape(title)}</h1>"]
    body += [f"<p>{escape(sentence)}</p>" for sentence in sentences]
    for section in sections:
        body += _section(section)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>prefold report</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _section(section: Section) -> Iterator[str]:
    yield f"<h2>{escape(section.title)}</h2>"
    yield "<div><table>"
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
