"""Chat bodies that begin as earlier ones did are parsed from where they part.

A long system prompt or history comes again, byte for byte, with each question. Comparing bytes is a
twentieth of the cost of parsing them. Knows JSON's form, and nothing of what messages mean.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from xxhash import xxh3_64_intdigest

MAX_BYTES = 32 * 1024 * 1024
"""Of bodies; the messages made of them take about as much again."""
HEAD_BYTES = 1024
"""By so many first bytes bodies are looked up; those that share them are few."""
MAX_ALIKE = 8
MAX_SEEN = 16_384
LONG = 1024
"""Bytes of a message from which on it is worth to be known."""

_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])

Messages = list[dict[str, Any]]


class Parted(NamedTuple):
    """`rest` is the body without the messages that are known, and valid JSON where the body is."""

    known: Messages
    rest: bytes
    gap: int
    """Bytes that the body is longer than `rest`."""


class _Beginning(NamedTuple):
    raw: bytes
    """Up to the end of a message."""
    opening: bytes
    """Up to the bracket that opens the list of messages."""
    messages: Messages


class BodyMemo:
    """Mutable; what was not seen for longest goes first. Messages are shared with other requests:
    do not change them."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._alike: OrderedDict[bytes, list[_Beginning]] = OrderedDict()
        self._seen: OrderedDict[int, None] = OrderedDict()

    def part(self, raw: bytes) -> Parted | None:
        """None if no beginning of it is known."""
        head = raw[:HEAD_BYTES]
        alike = self._alike.get(head)
        if alike is None:
            return None
        for beginning in sorted(alike, key=lambda one: -len(one.raw)):
            if raw.startswith(beginning.raw):
                end = len(beginning.raw)
                # Only what continues a list: a comma before its end would be no JSON.
                if raw.startswith((b",{", b", {"), end):
                    end += 1
                elif not raw.startswith(b"]", end):
                    continue
                self._alike.move_to_end(head)
                alike.remove(beginning)
                alike.append(beginning)
                rest = beginning.opening + raw[end:]
                return Parted(beginning.messages, rest, len(raw) - len(rest))
        return None

    def learn(
        self,
        raw: bytes,
        parted: Parted | None,
        members: Mapping[str, msgspec.Raw],
        messages: Messages,
    ) -> None:
        """A body that was parsed: the members of it, or of `parted.rest`, which are all there is;
        and its messages. Once is chance: what goes on as no body did before is not kept."""
        found = bytes(members["messages"])
        if len(found) < LONG or not self._was_seen(raw, parted):
            return
        beginning = _beginning(raw, parted, found, messages)
        if beginning is None:
            return
        alike = self._alike.setdefault(raw[:HEAD_BYTES], [])
        alike.append(beginning)
        self._bytes += len(beginning.raw)
        if len(alike) > MAX_ALIKE:
            self._bytes -= len(alike.pop(0).raw)
        while self._bytes > self._max_bytes:
            _, forgotten = self._alike.popitem(last=False)
            self._bytes -= sum(len(one.raw) for one in forgotten)

    def _was_seen(self, raw: bytes, parted: Parted | None) -> bool:
        start = 0 if parted is None else parted.gap
        key = xxh3_64_intdigest(raw[start : start + 2 * HEAD_BYTES], start)
        if key in self._seen:
            return True
        self._seen[key] = None
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)
        return False


def _beginning(
    raw: bytes, parted: Parted | None, found: bytes, messages: Messages
) -> _Beginning | None:
    """Up to the last long message that was not known; None if there is none, or if it cannot be
    told by a look where the list of messages begins."""
    rest, gap, count = raw, 0, 0
    if parted is not None:
        rest, gap, count = parted.rest, parted.gap, len(parted.known)
    start = _place(rest, found, 0)
    if start is None:
        return None
    opening = rest[: start + 1]
    if opening.count(b"{") != 1 or opening.count(b"[") != 1:
        return None
    end, at, taken = 0, start + 1, 0
    for number, element in enumerate(map(bytes, _ELEMENTS.decode(found)), 1):
        place = _place(rest, element, at)
        if place is None or rest[at:place].strip(b" \t\r\n,"):
            return None
        at = place + len(element)
        if len(element) >= LONG:
            end, taken = at, number
    if not end:
        return None
    return _Beginning(raw[: end + gap], opening, messages[: count + taken])


def _place(raw: bytes, part: bytes, at: int) -> int | None:
    """Where `part` begins, at `at` or later; it is looked for by its first bytes."""
    place = raw.find(part[:64], at)
    return place if place >= 0 and raw.startswith(part, place) else None
