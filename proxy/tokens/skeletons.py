"""What a chat template writes around the contents of messages, by their roles.

Where a template only passes contents on, chats of the same roles differ in nothing else: the
template is rendered once for them, with marks for contents, and not again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from secrets import token_hex
from typing import NamedTuple

from prefold.proxy.errors import NotEncodable
from prefold.proxy.tokens.chat_request import Chat, Message
from prefold.proxy.tokens.long_texts import UNMARKED, hides_start
from prefold.proxy.tokens.opaque_contents import Passing

MAX_MESSAGES = 8
"""A conversation that goes on has new roles with each turn, and is rendered as a whole."""
MAX_SKELETONS = 512
MEMBERS = {"role", "content"}
MAX_ROLE = 32
NO_CONTENT = -1


class _Segment(NamedTuple):
    """A piece of a prompt, with the content of the message of that number in it."""

    before: str
    content: int
    after: str


class Skeletons:
    """Mutable. `render` makes the text of a chat, which always begins with `start`; `split` cuts a
    text into the encoder's pieces."""

    def __init__(
        self,
        passing: Passing,
        start: str,
        render: Callable[[Chat], str],
        split: Callable[[str], list[str]],
    ) -> None:
        self._passing = passing
        self._start = start
        self._render = render
        self._split = split
        self._known: dict[tuple[bool, tuple[str, ...]], tuple[_Segment, ...] | None] = {}

    def segments(
        self, messages: Sequence[Message], add_generation_prompt: bool, short: Callable[[str], str]
    ) -> list[str] | None:
        """The pieces of this chat's prompt, with what `short` makes of each content; None where it
        must be rendered itself."""
        if len(messages) > MAX_MESSAGES or not self._passing.constant:
            return None
        contents = [message.get("content") for message in messages if message.keys() == MEMBERS]
        if len(contents) != len(messages) or not all(map(self._is_passed_on, contents)):
            return None
        roles = tuple([message["role"] for message in messages])
        if not all(map(_is_role, roles)):
            return None
        key = add_generation_prompt, roles
        if key not in self._known:
            if len(self._known) >= MAX_SKELETONS:
                self._known.clear()
            self._known[key] = self._skeleton(*key)
        skeleton = self._known[key]
        if skeleton is None:
            return None
        texts = [short(str(content)) for content in contents]
        return [
            before if content == NO_CONTENT else f"{before}{texts[content]}{after}"
            for before, content, after in skeleton
        ]

    def _is_passed_on(self, content: object) -> bool:
        """Compared, or trimmed, it might be something else than a mark in its place."""
        if not isinstance(content, str) or not content or self._passing.compares:
            return False
        edges = self._passing.trims and (content[0].isspace() or content[-1].isspace())
        return not edges and not content.startswith(UNMARKED)

    def _skeleton(
        self, add_generation_prompt: bool, roles: Sequence[str]
    ) -> tuple[_Segment, ...] | None:
        marks = [f"\ue000{token_hex(8)}\ue001" for _ in roles]
        chat = Chat(
            messages=[
                {"role": role, "content": mark} for role, mark in zip(roles, marks, strict=True)
            ],
            extra={},
            add_generation_prompt=add_generation_prompt,
        )
        try:
            text = self._render(chat)
        except NotEncodable:
            return None
        if hides_start(text, self._start):
            return None
        segments = [_segment(piece, marks) for piece in self._split(text)]
        return None if None in segments else tuple(filter(None, segments))


def _is_role(role: object) -> bool:
    return isinstance(role, str) and len(role) <= MAX_ROLE


def _segment(piece: str, marks: Sequence[str]) -> _Segment | None:
    """None if there is more than one content in it."""
    found = [number for number, mark in enumerate(marks) if mark in piece]
    if not found:
        return _Segment(piece, NO_CONTENT, "")
    before, *after = piece.split(marks[found[0]])
    return _Segment(before, found[0], after[0]) if len(found) == len(after) == 1 else None
