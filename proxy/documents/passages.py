"""A request's body as the pieces of its prompt, in the order in which templates put them, with the
documents in each. Works on the body's text; knows the members of the four kinds of requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefold.proxy.documents.marks import NONE, Found, Marks, in_list, in_texts, marked
from prefold.proxy.splice import Element, Member, elements, members

MODEL_ROLES = ("assistant", "model")
"""Whose messages are the model's own words: they stay as they are. (No set: a client's role may be
anything, and must not need to be hashable.)"""
ROLES = {"system": "system", "instructions": "system", "prompt": "user", "input": "user"}
"""Of members that are a content themselves."""
STATE = ("previous_response_id", "conversation")
"""Where one of these is given, what stands before the prompt is not in the body."""
READ = frozenset(("tools", "documents", "chat_template_kwargs", "messages", *ROLES, *STATE))

Members = Mapping[str, Member]


@dataclass(frozen=True, slots=True)
class Passage:
    """Characters of the body, and by which name the client knows them."""

    place: str
    start: int
    end: int
    found: Found = NONE


def passages(text: str, marks: Marks) -> list[Passage]:
    """Raises ValueError for a body of which this cannot be told."""
    read = _members(text, 0, READ)
    if any(name in read and read[name].value is not None for name in STATE):
        return []
    first = [_of(read[name]) for name in ("tools",) if name in read]
    first += [_own(text, read[name], marks) for name in ("system", "instructions") if name in read]
    turns: list[Passage] = []
    for name in ("messages", "input", "prompt"):
        turns += _turns(text, read, name, marks)
    given = list(_given(text, read)) if marks.member else []
    # Templates put `documents` before the messages, or after what the system has to say.
    lead = 1 if given and _begins_with_system(read.get("messages")) else 0
    documents = [_list(text, member, place, marks) for place, member in given]
    return first + turns[:lead] + documents + turns[lead:]


def _members(text: str, at: int, names: frozenset[str]) -> dict[str, Member]:
    """Those of `names`, of the object that begins at `at`."""
    found: dict[str, Member] = {}
    for member in members(text, at):
        if member.key in names and found.setdefault(member.key, member) is not member:
            raise ValueError("a member is given more than once")
    return found


def _of(member: Member, found: Found = NONE) -> Passage:
    return Passage(member.key, member.start, member.end, found)


def _own(text: str, member: Member, marks: Marks) -> Passage:
    return _of(member, _content(text, member, ROLES[member.key], marks))


def _begins_with_system(messages: Member | None) -> bool:
    listed = messages.value if messages is not None else None
    first = listed[0] if isinstance(listed, list) and listed else None
    return isinstance(first, dict) and first.get("role") in ("system", "developer")


def _given(text: str, read: Members) -> Iterator[tuple[str, Member]]:
    """`documents`, as vLLM takes them, for the template."""
    if "documents" in read:
        yield "documents", read["documents"]
    extra = read.get("chat_template_kwargs")
    if extra is not None and isinstance(extra.value, dict):
        for member in _members(text, extra.start, frozenset(("documents",))).values():
            yield "chat_template_kwargs.documents", member


def _list(text: str, member: Member, place: str, marks: Marks) -> Passage:
    found = NONE
    if isinstance(member.value, list):
        parts = list(elements(text, member.start))
        found = in_list(parts, [True] * len(parts), marks.fence)
    return Passage(place, member.start, member.end, found)


def _turns(text: str, read: Members, name: str, marks: Marks) -> Iterator[Passage]:
    """Messages or items, or a text in their place."""
    member = read.get(name)
    if member is None:
        return
    if name == "prompt" or not isinstance(member.value, list):
        yield _own(text, member, marks) if name in ROLES else _of(member)
        return
    for number, message in enumerate(elements(text, member.start)):
        found = NONE
        if isinstance(message.value, dict) and _may_hold_documents(message.value, marks):
            found = _message(text, message, marks)
        yield Passage(f"{name}[{number}]", message.start, message.end, found)


def _may_hold_documents(message: Mapping[str, Any], marks: Marks) -> bool:
    """Most messages do not, and are not taken apart."""
    if message.get("role") in MODEL_ROLES:
        return False
    content = message.get("content")
    if isinstance(content, str):
        return marks.delimited and marks.start in content
    return isinstance(content, list)


def _message(text: str, message: Element, marks: Marks) -> Found:
    role = message.value.get("role")
    content = _members(text, message.start, frozenset(("content",)))["content"]
    return _content(text, content, role if isinstance(role, str) else "", marks)


def _content(text: str, content: Member, role: str, marks: Marks) -> Found:
    """A text or a list of parts; of other forms nothing is known."""
    if isinstance(content.value, str):
        return in_texts(text, [content], marks) if marks.delimited else NONE
    if not isinstance(content.value, list):
        return NONE
    parts = list(elements(text, content.start))
    chosen = marked(role, content.value) if marks.parts else []
    if any(chosen):
        return in_list(parts, chosen, marks.fence)
    return in_texts(text, list(_texts_of(text, parts)), marks) if marks.delimited else NONE


def _texts_of(text: str, parts: Sequence[Element]) -> Iterator[Member]:
    for part in parts:
        if isinstance(part.value, dict) and isinstance(part.value.get("text"), str):
            yield _members(text, part.start, frozenset(("text",)))["text"]
