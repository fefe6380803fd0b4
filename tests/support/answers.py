"""When an answer of a model counts as right, and when two are the same."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence


def is_right(answer: str, gold: Sequence[str]) -> bool:
    """One of the right answers is in it, word for word and `plain` (as in the paper the questions
    are from, https://arxiv.org/abs/2307.03172)."""
    return any(f" {plain(one)} " in f" {plain(answer)} " for one in gold)


def plain(text: str) -> str:
    """Without case, articles, punctuation and white space of more than a blank."""
    kept = "".join(one for one in text.lower() if one not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())
