"""What a scripted answer holds, so that client and server agree on it without talking.

A request says in its member `chaos` what it wants; the text is a function of that, whichever
backend answers. The words are numbered: an event lost, doubled or moved changes the text.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec

WORDS = ("shelf", "river", "copper", "window", "letter", "garden", "music", "paper")


class Wanted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`pad` makes every word that many bytes longer; `status` other than 200 is an error answer."""

    seed: int = 0
    tokens: int = 8
    pace_ms: float = 5.0
    pad: int = 0
    status: int = 200


def words(wanted: Wanted) -> list[str]:
    """The tokens of the answer; joined they are its text."""
    rng = random.Random(wanted.seed)
    return [f" {number}-{rng.choice(WORDS)}{'.' * wanted.pad}" for number in range(wanted.tokens)]


def text(wanted: Wanted) -> str:
    return "".join(words(wanted))


def usage(wanted: Wanted) -> dict[str, Any]:
    return {
        "prompt_tokens": 64,
        "completion_tokens": wanted.tokens,
        "total_tokens": 64 + wanted.tokens,
        "prompt_tokens_details": {"cached_tokens": 32},
    }
