"""Which texts of a request may be made shorter, and where they stand in its body.

Earlier turns of the user, and of the last one what the client marks as documents. Everything else
is untouched: what the system, tools and the model said, the question, media, short texts. Works on
the text of the body; knows nothing of compressors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefold.proxy.documents.delimited import Span, places, spans
from prefold.proxy.documents.marks import BREAKPOINTS, DOCUMENT_TYPES, TEXT_TYPES, Marks, marked
from prefold.proxy.splice import Element, Member, elements, members

TURNS = ("messages", "input")
WITH_TEXT = ("content", "text")
"""Members of a document in `documents` that hold its text."""


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


@dataclass(frozen=True, slots=True)
class Turn:
    """A message, or what stands in place of one. `told` is the same for the same message, however
    its JSON is written and wherever a cache breakpoint is set. `notable`: in another turn it might
    be compressed, so how it was sent must be remembered."""

    told: str
    segments: Sequence[Segment] = ()
    notable: bool = False


def turns(text: str, rules: SegmentRules) -> list[Turn]:
    """Raises ValueError for a body of which this cannot be told."""
    read: dict[str, Member] = {}
    for member in members(text):
        if member.key in (*TURNS, "documents", "system", "instructions"):
            if member.key in read:
                raise ValueError("a member is given more than once")
            read[member.key] = member
    found = [Turn(_told(read[name].value)) for name in ("system", "instructions") if name in read]
    if "documents" in read and rules.marks.member:
        found.append(_documents(text, read["documents"], rules))
    for name in TURNS:
        if name in read and isinstance(read[name].value, list):
            found += _messages(text, read[name], rules)
    return found


def _messages(text: str, listed: Member, rules: SegmentRules) -> Iterator[Turn]:
    asked = [number for number, one in enumerate(listed.value) if _asks(one)]
    last = asked[-1] if asked else -1
    for number, message in enumerate(elements(text, listed.start)):
        segments: list[Segment] = []
        role, notable = _role(message.value), False
        told = _told(message.value)
        if (role == "user" or (role == "tool" and rules.tools)) and len(told) >= rules.min_chars:
            content = _member(text, message, "content")
            if content is not None:
                whole = number < last or role == "tool"
                segments = list(_of_content(text, content, role, rules, whole))
                notable = True
        yield Turn(told, segments, notable)


def _role(message: Any) -> str:
    role = message.get("role") if isinstance(message, dict) else None
    return role if isinstance(role, str) else ""


def _asks(message: Any) -> bool:
    """The user's own words; Anthropic's Messages have tools' results come as the user's."""
    content = message.get("content") if _role(message) == "user" else None
    if not isinstance(content, list):
        return content is not None
    kinds = [part.get("type") if isinstance(part, dict) else None for part in content]
    return any(kind != "tool_result" for kind in kinds)


def _of_content(
    text: str, content: Member, role: str, rules: SegmentRules, whole: bool
) -> Iterator[Segment]:
    """`whole`: all of its texts, not the marked documents only."""
    if isinstance(content.value, str):
        yield from _of_text(content, rules, whole)
    elif isinstance(content.value, list):
        parts = list(elements(text, content.start))
        is_document = marked(role, content.value) if rules.marks.parts else [False] * len(parts)
        for part, document in zip(parts, is_document, strict=True):
            for string in _strings(text, part):
                yield from _of_text(string, rules, whole or document)


def _strings(text: str, part: Element) -> Iterator[Member]:
    """The texts of a content part, if it is one of text or a document."""
    value = part.value
    kind = value.get("type") if isinstance(value, dict) else None
    if kind in TEXT_TYPES:
        yield from _text_of(text, part, "text")
    elif kind in DOCUMENT_TYPES and not _cited(value):
        source = _member(text, part, "source")
        given = source.value if source is not None else None
        if source is not None and isinstance(given, dict) and given.get("type") == "text":
            yield from _text_of(text, source, "data")
        inner = _member(text, part, "content")
        if inner is not None and isinstance(inner.value, list):
            for one in elements(text, inner.start):
                if isinstance(one.value, dict) and one.value.get("type") in TEXT_TYPES:
                    yield from _text_of(text, one, "text")


def _cited(part: Mapping[str, Any]) -> bool:
    """Citations name characters of the document as the client has it."""
    citations = part.get("citations")
    return isinstance(citations, dict) and bool(citations.get("enabled"))


def _documents(text: str, listed: Member, rules: SegmentRules) -> Turn:
    """The request's `documents`: texts, or objects with their text in one of two members."""
    segments: list[Segment] = []
    if isinstance(listed.value, list):
        for element in elements(text, listed.start):
            if isinstance(element.value, str):
                string = Member("", element.start, element.end, element.value)
                segments += _of_text(string, rules, whole=True)
            elif isinstance(element.value, dict):
                for name in WITH_TEXT:
                    for string in _text_of(text, element, name):
                        segments += _of_text(string, rules, whole=True)
    return Turn(_told(listed.value), segments, notable=True)


def _of_text(string: Member, rules: SegmentRules, whole: bool) -> Iterator[Segment]:
    """Delimited documents are segments of their own, without their delimiters, so that they come
    out the same in any text; what stands around them is compressed only if it is `whole`."""
    value: str = string.value
    marks, at = rules.marks, 0
    found = spans(value, marks.start, marks.end) if marks.delimited else []
    for start, end in found:
        if whole:
            yield from _long(string, Span(at, start), rules)
        yield from _long(string, Span(start + len(marks.start), end - len(marks.end)), rules)
        at = end
    if whole:
        yield from _long(string, Span(at, len(value)), rules)


def _long(string: Member, span: Span, rules: SegmentRules) -> Iterator[Segment]:
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


def _text_of(text: str, owner: Element | Member, name: str) -> Iterator[Member]:
    member = _member(text, owner, name)
    if member is not None and isinstance(member.value, str):
        yield member


def _member(text: str, owner: Element | Member, name: str) -> Member | None:
    """Raises ValueError if it is given twice."""
    found = [member for member in members(text, owner.start) if member.key == name]
    if len(found) > 1:
        raise ValueError("a member is given more than once")
    return found[0] if found else None


def _told(value: Any) -> str:
    if isinstance(value, dict) and isinstance(value.get("content"), str) and len(value) == 2:
        return f"{value.get('role')}\n{value['content']}"
    return json.dumps(_without_breakpoints(value), sort_keys=True)


def _without_breakpoints(value: Any) -> Any:
    """Clients move them from turn to turn."""
    if isinstance(value, dict):
        return {
            key: _without_breakpoints(one) for key, one in value.items() if key not in BREAKPOINTS
        }
    return [_without_breakpoints(one) for one in value] if isinstance(value, list) else value


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
