"""A prompt's parts as texts, and where two prompts first differ. Reads only as far as they are
alike, and one item further.

Parts are what stands for a prompt in the order of templates: texts, lists of messages or tools, or
None. Messages are dicts with `content`. Of several parts, the first one is the tools.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

MAX_CHARS = 256 * 1024
"""Of a text that is compared; what differs only after that is taken as alike."""
FIRST_STEP = 64
LAST_STEP = 16 * 1024

Parts = Sequence[Any]


class Text(NamedTuple):
    """`part`: which of the parts it is of. `role` is "" where there is none."""

    part: int
    role: str
    text: str


class Place(NamedTuple):
    """An item of a part; of a part that is no list there is one. Ordered as prompts are read."""

    part: int
    item: int


def first_difference(one: Parts, other: Parts) -> Place | None:
    """None if they are equal, or if one goes on where the other ends."""
    last = min(len(one), len(other)) - 1
    for part, (left, right) in enumerate(zip(one, other, strict=False)):
        if left is right:
            continue
        if not (isinstance(left, list) and isinstance(right, list)):
            if left != right:
                return Place(part, 0)
            continue
        # Lists compare their items by identity first; one by one, to know which.
        for item, (mine, its) in enumerate(zip(left, right, strict=False)):
            if not (mine is its or mine == its):
                return Place(part, item)
        if len(left) != len(right) and part < last:
            return Place(part, min(len(left), len(right)))
        if part == 0 < last:
            written = _otherwise_written(left, right)
            if written is not None:
                return Place(part, written)
    return None


def _otherwise_written(left: list[Any], right: list[Any]) -> int | None:
    """The first of equal tools whose members come in another order: templates write them out."""
    if _json(left) == _json(right):
        return None
    pairs = enumerate(zip(left, right, strict=False))
    return next((item for item, (mine, its) in pairs if _json(mine) != _json(its)), None)


def texts_from(parts: Parts, place: Place) -> Iterator[Text]:
    """From an item on, to the end or to what is no text: an image, token ids."""
    for part in range(place.part, len(parts)):
        value = parts[part]
        if value is None:
            continue
        items = value if isinstance(value, list) else [value]
        first = place.item if part == place.part else 0
        for item in items[first:]:
            for text in _texts_of(part, item):
                if text is None:
                    return
                yield text


def text_of(parts: Parts, place: Place) -> str:
    """All texts of an item; "" of one that has none."""
    value = parts[place.part]
    item = value[place.item] if isinstance(value, list) and place.item < len(value) else value
    if isinstance(item, dict) and isinstance(content := item.get("content"), str):
        return content
    return "".join(one.text for one in _texts_of(place.part, item) if one is not None)


def _texts_of(part: int, item: Any) -> Iterator[Text | None]:
    """None for what is no text."""
    if isinstance(item, str):
        yield Text(part, "", item)
        return
    if not isinstance(item, dict):
        yield None
        return
    if "content" not in item:
        yield Text(part, "", _json(item))
        return
    role, content = item.get("role"), item["content"]
    named = role if isinstance(role, str) else ""
    for one in content if isinstance(content, list) else [content]:
        text = one.get("text") if isinstance(one, dict) else one
        if isinstance(text, str):
            yield Text(part, named, text)
        elif text is not None or one is not None:
            yield None
    more = {name: one for name, one in item.items() if name not in ("role", "content")}
    if more:
        yield Text(part, named, _json(more))


def common_length(one: str, other: str, at: int = 0, there: int = 0) -> int:
    """Characters that are equal from there on, at most MAX_CHARS."""
    most = min(len(one) - at, len(other) - there, MAX_CHARS)
    low, step = 0, FIRST_STEP
    while low < most:
        high = min(low + step, most)
        if one[at + low : at + high] != other[there + low : there + high]:
            break
        low, step = high, min(2 * step, LAST_STEP)
    else:
        return most
    while high - low > 1:
        middle = (low + high) // 2
        if one[at + low : at + middle] == other[there + low : there + middle]:
            low = middle
        else:
            high = middle
    return low


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(value)
