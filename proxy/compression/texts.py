"""The texts of one message or document that may be made shorter, and a body without what was cut.

Works on the text of the body. Whose a message is, and whether it may be touched, it does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefold.proxy.documents.delimited import Span, places, spans
from prefold.proxy.documents.marks import DOCUMENT_TYPES, TEXT_TYPES, Marks, marked
from prefold.proxy.splice import Element, Member, elements, members


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRules:
    """`marks`: what counts as a document. `min_chars`: shorter texts stay. `tools`: what tools
    answered may be compressed too."""

    marks: Marks
    min_chars: int
    tools: bool = False


@dataclass(frozen=True, slots=True)
class Segment:
    """`text` are characters of the JSON string `string`, from its character `offset` on."""

    text: str
    string: Member
    offset: int = 0


def of_content(
    text: str, content: Member, role: str, rules: SegmentRules, whole: bool
) -> Iterator[Segment]:
    """`whole`: all of its texts, not the marked documents only."""
    if isinstance(content.value, str):
        yield from of_text(content, rules, whole)
    elif isinstance(content.value, list):
        parts = list(elements(text, content.start))
        is_document = marked(role, content.value) if rules.marks.parts else [False] * len(parts)
        for part, document in zip(parts, is_document, strict=True):
            if rules.tools and _is_result(part.value):
                result = member_of(text, part, "content")
                if result is not None:
                    yield from of_content(text, result, "tool", rules, whole=True)
            for string in _strings(text, part):
                yield from of_text(string, rules, whole or document)


def _is_result(part: Any) -> bool:
    """Of a tool, in Anthropic's Messages; what went wrong there is left as it is."""
    return isinstance(part, dict) and part.get("type") == "tool_result" and not part.get("is_error")


def _strings(text: str, part: Element) -> Iterator[Member]:
    """The texts of a content part, if it is one of text or a document."""
    value = part.value
    kind = value.get("type") if isinstance(value, dict) else None
    if kind in TEXT_TYPES:
        yield from text_of(text, part, "text")
    elif kind in DOCUMENT_TYPES and not _cited(value):
        source = member_of(text, part, "source")
        given = source.value if source is not None else None
        if source is not None and isinstance(given, dict) and given.get("type") == "text":
            yield from text_of(text, source, "data")
        inner = member_of(text, part, "content")
        if inner is not None and isinstance(inner.value, list):
            for one in elements(text, inner.start):
                if isinstance(one.value, dict) and one.value.get("type") in TEXT_TYPES:
                    yield from text_of(text, one, "text")


def _cited(part: Mapping[str, Any]) -> bool:
    """Citations name characters of the document as the client has it."""
    citations = part.get("citations")
    return isinstance(citations, dict) and bool(citations.get("enabled"))


def of_text(string: Member, rules: SegmentRules, whole: bool) -> Iterator[Segment]:
    """Delimited documents are segments of their own, without their delimiters, so that they come
    out the same in any text; what stands around them is compressed only if it is `whole`."""
    value: str = string.value
    marks, at = rules.marks, 0
    found = spans(value, marks.start, marks.end) if marks.delimited else []
    for start, end in found:
        if whole:
            yield from long_enough(string, Span(at, start), rules)
        yield from long_enough(string, Span(start + len(marks.start), end - len(marks.end)), rules)
        at = end
    if whole:
        yield from long_enough(string, Span(at, len(value)), rules)


def long_enough(string: Member, span: Span, rules: SegmentRules) -> Iterator[Segment]:
    if span.end - span.start < rules.min_chars:
        return
    text = string.value[span.start : span.end]
    if rules.marks.fence and rules.marks.fence in text:
        return
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate: engines differ in what they make of it
        return
    yield Segment(text, string, span.start)


def text_of(text: str, owner: Element | Member, name: str) -> Iterator[Member]:
    member = member_of(text, owner, name)
    if member is not None and isinstance(member.value, str):
        yield member


def member_of(text: str, owner: Element | Member, name: str) -> Member | None:
    """Raises ValueError if it is given twice."""
    found = [member for member in members(text, owner.start) if member.key == name]
    if len(found) > 1:
        raise ValueError("a member is given more than once")
    return found[0] if found else None


def without(text: str, cuts: Sequence[tuple[Segment, Sequence[int]]]) -> str:
    """The body's text with only the kept spans (flat, of the segment's text) of these segments;
    every other character stays, and what stays is written as it was. The segments are in the order
    of the body."""
    pieces, at = [], 0
    for segment, kept in cuts:
        string = segment.string
        edges = [segment.offset, *[segment.offset + cut for cut in kept]]
        edges.append(segment.offset + len(segment.text))
        found = places(text[string.start : string.end], edges)
        # Between edges 2n and 2n+1 is what goes.
        for start, end in zip(found[::2], found[1::2], strict=True):
            pieces.append(text[at : string.start + start])
            at = string.start + end
    return "".join([*pieces, text[at:]])
