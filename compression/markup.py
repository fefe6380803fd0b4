"""Spans of code, data, tags and tables inside a text, and spans between markers. Linear time."""

from __future__ import annotations

import re
from collections.abc import Iterator

Found = list[tuple[int, int]]

# Loops are possessive, so a failure is found once and not for each length.
FENCE = re.compile(r"^[ \t]{0,3}(`{3,}+(?=[^`\n]*+$)|~{3,}+)[^\n]*+$", re.MULTILINE)
INLINE = re.compile(r"(?<!`)(?:`[^`\n]++`|``(?!`)(?:[^`\n]|`(?!`))++``)(?!`)")
TEMPLATE = re.compile(r"\{\{[^{}\n]{1,200}+\}\}|\$\{[^{}\n]{1,200}+\}|\{%[^{}\n]{1,200}+%\}")
TAG = re.compile(r"<(?:!--|[!?/]?[A-Za-z][^<>]{0,2000}+>)")
RAW = ("pre", "code", "script", "style", "textarea", "math", "svg")
RAW_ELEMENT = re.compile(rf"<({'|'.join((*RAW, *(name.upper() for name in RAW)))})\b")
JSON_START = re.compile(r'\{\s{0,40}(?:"|\})|\[\s{0,40}(?:[\[{"\]\d-]|true\b|false\b|null\b)')
# A string that does not close ends with its line.
JSON_PARTS = re.compile(r'"(?:[^"\\\n]|\\.)*+"?|[{}\[\]]', re.DOTALL)
PATIENCE = 4  # with brackets that never close, so many times the text's length is searched


def markup_spans(text: str) -> Found:
    """Not in order; may overlap."""
    found = _fences(text) if "```" in text or "~~~" in text else []
    if "`" in text:
        found += [match.span() for match in INLINE.finditer(text)]
    if "<" in text:
        found += _tags(text)
    if "{" in text or "[" in text:
        found += _json(text)
        found += [match.span() for match in TEMPLATE.finditer(text)]
    if "|" in text or "\t" in text or "," in text:
        found += _tables(text)
    return found


def paired_spans(text: str, pairs: tuple[tuple[str, str], ...], *, to_end: bool) -> Found:
    """From each opening marker through the next closing one.

    With `to_end` an opening one that is never closed counts to the end of the text; without, both
    must lie in one paragraph.
    """
    found = []
    for opening, closing in pairs:
        limit = len(text) if to_end else 0
        at = text.find(opening)
        while at >= 0:
            inside = at + len(opening)
            if inside > limit:
                limit = _end_of_paragraph(text, inside)
            closed = text.find(closing, inside, limit)
            if closed >= 0:
                inside = closed + len(closing)
                found.append((at, inside))
            elif to_end:
                found.append((at, len(text)))
                break
            else:
                inside = limit  # nothing closes before it
            at = text.find(opening, inside)
    return found


def _end_of_paragraph(text: str, start: int) -> int:
    end = text.find("\n\n", start)
    return len(text) if end < 0 else end


def _fences(text: str) -> Found:
    """Fenced code, as CommonMark closes it; an open fence runs to the end of the text."""
    found = []
    opened, fence = -1, ""
    for line in FENCE.finditer(text):
        mark = line[1]
        if opened < 0:
            opened, fence = line.start(), mark
        elif mark[0] == fence[0] and len(mark) >= len(fence) and line[0].strip() == mark:
            found.append((opened, line.end()))
            opened = -1
    if opened >= 0:
        found.append((opened, len(text)))
    return found


def _tags(text: str) -> Found:
    """Tags alone, but comments and elements whose contents are not prose as a whole."""
    found = []
    at = 0
    no_end: set[str] = set()  # closing strings that do not come any more
    while match := TAG.search(text, at):
        start, at = match.span()
        closing = _closing(text, start, match[0])
        if closing and closing not in no_end:
            end = text.find(closing, at)
            if end >= 0:
                at = end + len(closing)
            else:
                no_end.add(closing)
        found.append((start, at))
    return found


def _closing(text: str, start: int, tag: str) -> str:
    if tag == "<!--":
        return "-->"
    raw = RAW_ELEMENT.match(text, start)
    return f"</{raw[1]}>" if raw and not tag.endswith("/>") else ""


def _json(text: str) -> Found:
    """What begins as JSON does, to its closing bracket; what never closes, to its line's end."""
    found = []
    at = 0
    patience = PATIENCE * len(text)  # for scans that met the end of the text
    while match := JSON_START.search(text, at):
        start = match.start()
        line = text.find("\n", start)
        line = len(text) if line < 0 else line
        limit = len(text) if patience > 0 else line
        end = _closed(text, start, limit)
        if end < 0:
            patience -= limit - start
            end = line
        found.append((start, end))
        at = end
    return found


def _closed(text: str, start: int, limit: int) -> int:
    """Where the bracket at `start` is closed, or -1. Brackets in strings do not count."""
    depth = 0
    for part in JSON_PARTS.finditer(text, start, limit):
        if part[0] in "{[":
            depth += 1
        elif part[0] in "}]":
            depth -= 1
            if depth == 0:
                return part.end()
    return -1


def _tables(text: str) -> Found:
    """Lines one after the other that are parted in the same way: by bars, tabs or bare commas."""
    found: Found = []
    first, last, count, before = 0, 0, 0, ("", 0)
    for start, end, shape in _line_shapes(text):
        if shape[1] and (shape == before or shape[0] == before[0] == "|"):
            last, count = end, count + 1
        else:
            if count > 1:
                found.append((first, last))
            first, last, count = start, end, 1
        before = shape
    if count > 1 and before[1]:
        found.append((first, last))
    return found


def _line_shapes(text: str) -> Iterator[tuple[int, int, tuple[str, int]]]:
    start = 0
    for line in text.split("\n"):
        end = start + len(line)
        yield start, end, _shape(line)
        start = end + 1


def _shape(line: str) -> tuple[str, int]:
    """By what a line is parted, and how many times; 0 for prose."""
    bars = line.count("|")
    if bars:
        return "|", bars
    tabs = line.strip("\t").count("\t")
    if tabs:
        return "\t", tabs
    commas = line.count(",")
    if commas > 1 and ", " not in line:
        return ",", commas
    return "", 0
