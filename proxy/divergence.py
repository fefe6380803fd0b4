"""Where prompts part from recent ones of the same model and tenant, told while both are in memory.

Of each prompt its parsed parts are held until newer ones displace it, within a bound; what leaves
here is a kind, a place and a keyed digest. Off unless it is asked for; a sample of the requests is
compared, all of them are remembered.
"""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from prefold.backends.backend import Mode
from prefold.measurement.divergence.classify import parted
from prefold.measurement.divergence.record import ALIKE, Divergence
from prefold.measurement.divergence.tally import position_range
from prefold.measurement.divergence.texts import (
    Parts,
    Place,
    common_length,
    first_difference,
    text_of,
)
from prefold.prefix_index.prefix import Prefix, Units
from prefold.proxy.openai import Body
from prefold.proxy.prompt import Prompt

HEAD_CHARS = 12
"""Prompts are compared if their first text begins alike for so many, hexadecimal digits aside."""
MASK = str.maketrans("0123456789abcdefABCDEF", "0" * 22)
RECENT = 8
"""Prompts that are remembered for each beginning."""
MAX_HELD_BYTES = 32 * 1024 * 1024
MAX_BODY_BYTES = 256 * 1024
"""Larger ones are not looked at: to compare them would hold up the event loop."""
TEMPLATE_UNITS = 64

HELD = 3
"""Bytes in memory for each of the body's: its texts, its token ids, and what holds them."""

Group = tuple[int, bool, str]
"""The namespace, whether there are tools, and the beginning of the first text."""


class _Recent(NamedTuple):
    parts: Parts
    prompt: Prompt
    size: int


class Divergences:
    """Mutable, for one event loop."""

    def __init__(
        self,
        secret: bytes,
        share: float,
        *,
        draw: Callable[[], float] = random.random,
        max_held_bytes: int = MAX_HELD_BYTES,
    ) -> None:
        """Of the requests, the `share` is compared for which `draw` is below it."""
        self._key = blake2b(secret, digest_size=32, person=b"template").digest()
        self._share = share
        self._draw = draw
        self._room = max_held_bytes
        self._groups: OrderedDict[Group, deque[_Recent]] = OrderedDict()

    def look(self, body: Body, size: int, seed: int, prompt: Prompt) -> Divergence | None:
        """None: it is none of the sample, or nothing to look at. `size`: of the body in bytes;
        `seed`: of its model and tenant. The parts of the body are held: do not change them."""
        if size > MAX_BODY_BYTES:
            return None
        parts = body.key_parts()
        group = _group(parts, seed)
        if group is None:
            return None
        recent = self._groups.get(group)
        made: Divergence | None = None
        if self._draw() < self._share:
            made = ALIKE if recent is None else self._compared(group, parts, size, prompt, recent)
        self._remember(group, _Recent(parts, prompt, HELD * size))
        return made

    def _compared(
        self, group: Group, parts: Parts, size: int, prompt: Prompt, recent: deque[_Recent]
    ) -> Divergence:
        nearest = _nearest(parts, recent)
        if nearest is None:
            return ALIKE
        other, place = nearest
        found = parted(parts, other.parts, place)
        if found is None:
            return ALIKE
        prefix = _known(prompt)
        position = _common_units(prefix.units, _known(other.prompt).units)
        return Divergence(
            kind=found.kind,
            template=self._template(group, prefix.units, position),
            position=position,
            lost=round(found.lost_chars * prefix.length / size),
        )

    def _template(self, group: Group, units: Units, position: int) -> str:
        """What prompts have in common that part about there."""
        shared = units[: min(position_range(position), TEMPLATE_UNITS)]
        digest = blake2b(key=self._key, digest_size=6, person=b"template")
        digest.update(repr(group).encode("utf-8", "surrogatepass"))
        digest.update(shared.tobytes())
        return digest.hexdigest()

    def _remember(self, group: Group, one: _Recent) -> None:
        recent = self._groups.get(group)
        if recent is None:
            recent = self._groups[group] = deque()
        else:
            self._groups.move_to_end(group)
        recent.append(one)
        self._room -= one.size
        if len(recent) > RECENT:
            self._room += recent.popleft().size
        while self._room < 0:
            _, oldest = self._groups.popitem(last=False)
            self._room += sum(held.size for held in oldest)


def _group(parts: Parts, seed: int) -> Group | None:
    """None where it does not begin with a text. Tools may come in any order."""
    tools = len(parts) > 1 and bool(parts[0])
    for part in parts[1:] if tools else parts:
        first = part[0] if isinstance(part, list) and part else part
        if first:
            head = _head(first)
            return None if head is None else (seed, tools, head[:HEAD_CHARS].translate(MASK))
    return None


def _head(item: Any) -> str | None:
    """Of a text or a message; None where it is something else."""
    if isinstance(item, str):
        return item
    if not isinstance(item, dict):
        return None
    content = item.get("content")
    if isinstance(content, list):
        content = content[0] if content else None
        content = content.get("text") if isinstance(content, dict) else content
    return content if isinstance(content, str) else None


def _nearest(parts: Parts, recent: deque[_Recent]) -> tuple[_Recent, Place] | None:
    """The one that it parts from last, of equals the latest; None if it parts not from one."""
    best: list[tuple[_Recent, Place]] = []
    for other in reversed(recent):
        place = first_difference(parts, other.parts)
        if place is None:
            return None
        if not best or place > best[0][1]:
            best = [(other, place)]
        elif place == best[0][1]:
            best.append((other, place))
    if len(best) == 1:
        return best[0]
    return _most_alike(text_of(parts, best[0][1]), best)


def _most_alike(text: str, nearest: list[tuple[_Recent, Place]]) -> tuple[_Recent, Place]:
    """Of those that differ in the same item first. What is no better so far costs one look."""
    found, common = nearest[0], -1
    for one in nearest:
        its = text_of(one[0].parts, one[1])
        if common < 0 or its[common : common + 1] == text[common : common + 1] != "":
            alike = common_length(text, its)
            if alike > common:
                found, common = one, alike
    return found


def _known(prompt: Prompt) -> Prefix:
    """Exact ids if there are any, as far as they are known by now."""
    whole = prompt.whole
    if whole is not None and whole.done() and not whole.cancelled() and not whole.exception():
        return whole.result()
    return prompt.prefix(Mode.FEEDBACK)


def _common_units(one: Units, other: Units) -> int:
    most = min(len(one), len(other))
    unequal = one[:most] != other[:most]
    return int(np.argmax(unequal)) if unequal.any() else most
