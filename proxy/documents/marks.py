"""What a client marks as documents, and which of them may change places with each other.

Works on the text of a request's body and gives places in it. Decides nothing about their order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prefold.proxy.documents.delimited import Span, adjacent, places, spans
from prefold.proxy.splice import Element, Member

KINDS = ("parts", "member", "delimited")
DOCUMENT_TYPES = ("document", "search_result")
"""Of content parts, as Anthropic's Messages have them."""
TEXT_TYPES = ("text", "input_text")
BREAKPOINTS = ("cache_control", "prompt_cache_breakpoint")
"""Members by which a client says up to where a prompt is to be cached: Anthropic's and OpenAI's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What counts as a document. `parts`: content parts of type `document` or `search_result`, or
    where a user's message has none of those, all its text parts but the last. `member`: elements
    of `documents`. `delimited`: what stands between `start` and `end` in a text. What has `fence`
    in it ("": none) stays, and nothing is moved across it."""

    parts: bool = False
    member: bool = False
    delimited: bool = False
    start: str = "<document>"
    end: str = "</document>"
    fence: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """Characters of the body. `number`: among those of its passage. `content` is the same for the
    same document, however its JSON is written."""

    number: int
    start: int
    end: int
    content: str


@dataclass(frozen=True, slots=True)
class Found:
    """`runs`: at least two documents each, that may change places. `count`: documents in all."""

    runs: Sequence[Sequence[Document]] = ()
    count: int = 0


NONE = Found()


def marked(role: str, parts: Sequence[Any]) -> list[bool]:
    """Which parts of a message's content are documents."""
    typed = [isinstance(part, dict) and part.get("type") in DOCUMENT_TYPES for part in parts]
    if any(typed) or role != "user":
        return typed
    return [
        number < len(parts) - 1 and isinstance(part, dict) and part.get("type") in TEXT_TYPES
        for number, part in enumerate(parts)
    ]


def in_list(parts: Sequence[Element], chosen: Sequence[bool], fence: str) -> Found:
    """Runs of chosen parts, one behind the other."""
    runs: list[list[Document]] = [[]]
    count = 0
    for part, is_document in zip(parts, chosen, strict=True):
        if not is_document or _stays(part.value, fence):
            runs.append([])
        else:
            runs[-1].append(Document(count, part.start, part.end, _told(part.value)))
        count += is_document
    return Found([run for run in runs if len(run) > 1], count)


def in_texts(text: str, strings: Sequence[Member], marks: Marks) -> Found:
    """Runs of delimited pieces with nothing but white space between them, each within one of the
    JSON strings of the body `text`; numbered through."""
    runs: list[list[Document]] = []
    count = 0
    for string in strings:
        found = spans(string.value, marks.start, marks.end)
        cuts = places(text[string.start : string.end], [cut for span in found for cut in span])
        before: Span | None = None
        for number, span in enumerate(found):
            content = string.value[span.start : span.end]
            fenced = bool(marks.fence) and marks.fence in content
            if fenced or before is None or not adjacent(string.value, before, span):
                runs.append([])
            before = None if fenced else span
            if not fenced:
                start, end = (string.start + cut for cut in cuts[2 * number : 2 * number + 2])
                runs[-1].append(Document(count + number, start, end, content))
        count += len(found)
    return Found([run for run in runs if len(run) > 1], count)


def _stays(part: Any, fence: str) -> bool:
    if isinstance(part, dict) and any(part.get(name) is not None for name in BREAKPOINTS):
        return True
    return bool(fence) and any(fence in one for one in _strings(part))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _strings(one)


def _told(part: Any) -> str:
    if isinstance(part, dict) and part.keys() == {"type", "text"} and isinstance(part["text"], str):
        return part["text"]
    return json.dumps(part, sort_keys=True)
