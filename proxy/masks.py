"""Parts of a prompt's head that differ in each request (a nonce, a date) and are not to tell
conversations apart. The body that is sent stays as it is.

No engine reuses what follows a part that differs, so nothing here makes a prompt count as cached
where tokens are compared. What is masked settles near-ties only; and where a rule says that the
engine takes the part out, bytes that stand for tokens are compared without it.

Patterns are RE2's, whose time is linear in the text, whatever the pattern and the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
from xxhash import xxh3_64_intdigest

HEAD_CHARS = 8192
"""Of each text, what is looked at."""
MAX_TEXTS = 16
"""Of one prompt."""
MAX_MATCHES = 64
"""Of each rule in each text: a prompt may be written to match everywhere."""
MAX_PATTERN_CHARS = 1000
PROBES = ("", "a 1\n")
SYSTEM_ROLES = ("system", "developer")


class MaskRule(msgspec.Struct, frozen=True, kw_only=True):
    """`models`: as backends list them; none: all. `stripped`: the engine takes out what matches."""

    pattern: str
    models: tuple[str, ...] = ()
    stripped: bool = False


class Pattern(Protocol):
    """A compiled one, of RE2."""

    def subn(self, repl: str, text: str, count: int) -> tuple[str, int]: ...


class Masked(msgspec.Struct, frozen=True):
    """A prompt in which something matched. `conversation`: what its leading system messages and its
    first user message begin with, less what is masked. `parts`: in place of the body's `key_parts`,
    where a rule says that the engine takes it out; None: as they are."""

    conversation: bytes
    parts: list[Any] | None

    def affinity(self, seed: int) -> int:
        return xxh3_64_intdigest(self.conversation, seed)


class Masks:
    def __init__(self, rules: Sequence[MaskRule]) -> None:
        """Raises ValueError for a pattern that cannot be used, ImportError without RE2."""
        self._rules = [(rule, compiled(rule.pattern)) for rule in rules]

    def look(self, model: str, parts: Sequence[Any]) -> Masked | None:
        """`parts`: the prompt, as a body's `key_parts`. None where nothing matches."""
        rules = [rule for rule in self._rules if not rule[0].models or model in rule[0].models]
        if not rules:
            return None
        masking = _Masking(
            [pattern for _, pattern in rules],
            [pattern for rule, pattern in rules if rule.stripped],
        )
        stripped = edited(parts, masking.edit)
        if not masking.matched:
            return None
        return Masked("\0".join(masking.texts).encode(), stripped if masking.stripped else None)


class _Masking:
    """What the rules make of one prompt's texts."""

    def __init__(self, masks: Sequence[Pattern], strips: Sequence[Pattern]) -> None:
        self._masks = masks
        self._strips = strips
        self.texts: list[str] = []
        self.matched = self.stripped = False

    def edit(self, text: str) -> str:
        """The text as the engine sees it. Its masked head is noted."""
        if len(self.texts) >= MAX_TEXTS:
            return text
        head = text[:HEAD_CHARS]
        if not head.isascii():
            head = head.encode("utf-8", "replace").decode()  # RE2 takes no lone surrogates
        masked, count = _without(head, self._masks)
        self.texts.append(masked)
        if not count:
            return text
        self.matched = True
        stripped, count = _without(head, self._strips)
        if not count:
            return text
        self.stripped = True
        return stripped + text[HEAD_CHARS:]


def _without(text: str, patterns: Sequence[Pattern]) -> tuple[str, int]:
    total = 0
    for pattern in patterns:
        text, count = pattern.subn("", text, MAX_MATCHES)
        total += count
    return text, total


def compiled(pattern: str) -> Pattern:
    """Raises ValueError for what RE2 does not know (lookaround, back references), what is too long,
    and what matches an empty text, which is everywhere; ImportError without RE2."""
    import re2

    if len(pattern) > MAX_PATTERN_CHARS:
        raise ValueError(f"longer than {MAX_PATTERN_CHARS} characters")
    options = re2.Options()
    options.log_errors = False
    try:
        made = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        told = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"not a pattern of RE2: {told}") from None
    if any(match.start() == match.end() for text in PROBES for match in made.finditer(text)):
        raise ValueError("it matches an empty text")
    found: Pattern = made
    return found


Edit = Callable[[str], str]


def edited(parts: Sequence[Any], edit: Edit) -> list[Any]:
    """A body's `key_parts` with their leading texts replaced: texts that stand alone, and in lists
    of messages those of system messages and of the first user message. The rest is the same
    objects; tools and token ids have no texts here."""
    return [_edited_part(part, edit) for part in parts]


def _edited_part(part: Any, edit: Edit) -> Any:
    if isinstance(part, str):
        return edit(part)
    if not isinstance(part, list):
        return part
    made = list(part)
    for place, item in enumerate(part[:MAX_TEXTS]):
        if not isinstance(item, dict):
            break
        made[place] = _edited_message(item, edit)
        role = item.get("role")
        if role is not None and role not in SYSTEM_ROLES:
            break  # the first that is a user's
    return made


def _edited_message(message: dict[str, Any], edit: Edit) -> dict[str, Any]:
    """Of a message, its content; of a block of text, its text."""
    for member in ("content", "text"):
        value = message.get(member)
        if isinstance(value, str):
            return {**message, member: edit(value)}
        if isinstance(value, list):
            return {
                **message,
                member: [
                    _edited_message(one, edit) if isinstance(one, dict) else one for one in value
                ],
            }
    return message
