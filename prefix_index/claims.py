"""What was believed of a prompt when it was sent, so that a report can be compared with it later.

By then the prompt has touched its blocks: how old they were is known from here only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from prefold.prefix_index.index import Placement
from prefold.prefix_index.runs import Run


class Part(NamedTuple):
    """Of a prompt, the blocks up to `end` that one run held."""

    end: int
    stamp: int
    promised: bool
    doubted: bool


class BlockPlacement(Placement, kw_only=True):
    parts: list[Part]
    """Of what was known of its prompt, in order: each is older than the one before it."""
    size: int
    """Blocks that were believed to be held, of all prompts."""
    demoted: int
    """As of then, as is the next: see `Recency`."""
    clock: int


def parts_of(path: Sequence[Run], known: int) -> list[Part]:
    """On the way of every request, hence without calls that can be spared."""
    parts, end = [], 0
    for run in path:
        end += len(run.keys)
        owner = run.owner
        promised = owner is not None and owner.open
        parts.append(Part(end if end < known else known, run.stamp, promised, run.doubted))
    return parts


def believed_blocks(parts: Sequence[Part]) -> int:
    """Those before the first doubted one."""
    believed = 0
    for part in parts:
        if part.doubted:
            break
        believed = part.end
    return believed


def first_lost(parts: Sequence[Part], found: int) -> Part | None:
    """The youngest that was not found whole."""
    return next((part for part in parts if part.end > found), None)


def last_found(parts: Sequence[Part], found: int) -> Part | None:
    """The oldest of the doubted ones of which something was found."""
    start, last = 0, None
    for part in parts:
        if part.doubted and start < found:
            last = part
        start = part.end
    return last


def from_before(parts: Sequence[Part], stamp: int) -> tuple[int, Part | None]:
    """The youngest that had been touched last at that time or before, and where it begins."""
    start = 0
    for part in parts:
        if part.stamp <= stamp:
            return start, part
        start = part.end
    return start, None
