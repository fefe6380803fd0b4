"""Passages or tools that two prompts have in another order."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

ORDER_CHARS = 8192
"""Of each text, where lines in another order are looked for."""
PASSAGE_CHARS = 24
"""What is shorter may be equal by chance."""
MAX_ENTRIES = 128


def in_other_order(ours: Sequence[str], theirs: Sequence[str]) -> int:
    """Characters of the entries that both have, if these are two or more in another order; 0
    otherwise."""
    ours, theirs = ours[:MAX_ENTRIES], theirs[:MAX_ENTRIES]
    common = {entry for entry in set(ours).intersection(theirs) if len(entry) >= PASSAGE_CHARS}
    if len(common) < 2:
        return 0
    mine, its = (dict.fromkeys(one for one in side if one in common) for side in (ours, theirs))
    return 0 if list(mine) == list(its) else sum(map(len, common))


def tools_in_other_order(ours: Sequence[str], theirs: Sequence[str]) -> int:
    """The same of tools, as JSON that differs; also if only their members are in another order."""
    ours, theirs = [_canonical(one) for one in ours], [_canonical(one) for one in theirs]
    if ours == theirs:
        return sum(map(len, ours))
    return in_other_order(ours, theirs)


def _canonical(tool: str) -> str:
    try:
        return msgspec.json.encode(msgspec.json.decode(tool), order="sorted").decode()
    except (msgspec.DecodeError, UnicodeEncodeError):
        return tool


def moved_lines(mine: str, its: str, at: int) -> int:
    """Characters of the lines after the place that both have, if their order differs."""
    start = mine.rfind("\n", max(at - ORDER_CHARS, 0), at) + 1
    if mine.count("\n", start, start + ORDER_CHARS) < 1:
        return 0
    ours = mine[start : start + ORDER_CHARS].split("\n")
    theirs = its[start : start + ORDER_CHARS].split("\n")
    lost = in_other_order(ours, theirs)
    shorter = min(len(mine), len(its), start + ORDER_CHARS) - start
    return lost if 2 * lost >= shorter else 0
