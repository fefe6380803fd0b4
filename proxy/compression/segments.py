"""Which texts of a request may be made shorter, and where they stand in its body.

Earlier turns of the user, and of the last one, or of a plain prompt, what the client marks as
documents. Everything else is untouched: what the system, tools and the model said, the question,
media, short texts. Works on the text of the body; knows nothing of compressors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prefold.proxy.compression.texts import (
    Segment,
    SegmentRules,
    long_enough,
    member_of,
    of_content,
    of_text,
    text_of,
)
from prefold.proxy.documents.delimited import Span, spans
from prefold.proxy.documents.marks import BREAKPOINTS
from prefold.proxy.splice import Member, elements, members

TURNS = ("messages", "input")
OTHERS = ("documents", "system", "instructions", "prompt", "echo")
WITH_TEXT = ("content", "text")
"""Members of a document in `documents` that hold its text."""


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
        if member.key in (*TURNS, *OTHERS):
            if member.key in read:
                raise ValueError("a member is given more than once")
            read[member.key] = member
    found = [Turn(_told(read[name].value)) for name in ("system", "instructions") if name in read]
    if "documents" in read and rules.marks.member:
        found.append(_documents(text, read["documents"], rules))
    for name in TURNS:
        if name in read and isinstance(read[name].value, list):
            found += _messages(text, read[name], rules)
    if "prompt" in read and not ("echo" in read and read["echo"].value):
        found += _prompt(read["prompt"], rules)
    return found


def _prompt(prompt: Member, rules: SegmentRules) -> Iterator[Turn]:
    """Of a plain one (not several, nor token ids): each delimited document and each text between
    two is a turn, so that they keep their form while the prompt grows. One that is to be echoed is
    the client's."""
    marks = rules.marks
    if not isinstance(prompt.value, str) or not marks.delimited:
        return
    value, at = prompt.value, 0
    for start, end in spans(value, marks.start, marks.end):
        inside = Span(start + len(marks.start), end - len(marks.end))
        segments = list(long_enough(prompt, inside, rules))
        yield Turn(value[at:start])
        yield Turn(value[start:end], segments, notable=bool(segments))
        at = end


def _messages(text: str, listed: Member, rules: SegmentRules) -> Iterator[Turn]:
    asked = [number for number, one in enumerate(listed.value) if _asks(one)]
    last = asked[-1] if asked else -1
    for number, message in enumerate(elements(text, listed.start)):
        segments: list[Segment] = []
        role, name = _said(message.value)
        notable = False
        told = _told(message.value)
        if (role == "user" or (role == "tool" and rules.tools)) and len(told) >= rules.min_chars:
            content = member_of(text, message, name)
            if content is not None:
                whole = number < last or role == "tool"
                segments = list(of_content(text, content, role, rules, whole))
                notable = True
        yield Turn(told, segments, notable)


def _said(message: Any) -> tuple[str, str]:
    """Whose it is, and the member that holds what was said; what tools answered is an item of its
    own in Responses."""
    if isinstance(message, dict) and message.get("type") == "function_call_output":
        return "tool", "output"
    return _role(message), "content"


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


def _documents(text: str, listed: Member, rules: SegmentRules) -> Turn:
    """The request's `documents`: texts, or objects with their text in one of two members."""
    segments: list[Segment] = []
    if isinstance(listed.value, list):
        for element in elements(text, listed.start):
            if isinstance(element.value, str):
                string = Member("", element.start, element.end, element.value)
                segments += of_text(string, rules, whole=True)
            elif isinstance(element.value, dict):
                for name in WITH_TEXT:
                    for string in text_of(text, element, name):
                        segments += of_text(string, rules, whole=True)
    return Turn(_told(listed.value), segments, notable=True)


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
