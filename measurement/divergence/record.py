"""What is kept of where a prompt parted from an earlier one: figures and a name, no text."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """What stands where two prompts part."""

    TIMESTAMP = "timestamp"
    UUID = "uuid"
    NUMBER = "number"  # a number, or a word with digits in it: counters, ids, nonces
    WHITESPACE = "whitespace"  # the same text but for blanks and line ends
    DOCUMENT_ORDER = "document_order"  # the same passages in another order
    TOOL_ORDER = "tool_order"  # the same tools, or their members, in another order
    MESSAGE = "message"  # another message, and nothing in common after it: how prompts should part
    OTHER = "other"


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """Of one request that was looked at. `kind` None: it parted from none, as it goes on where an
    earlier prompt ended, or as there was none that began alike; the others are then empty.

    `position` and `lost` are tokens, or units of four bytes where exact ids are not known: how much
    it shares with the earlier prompt, and how much of what follows is in both, from behind what
    differs up to where they differ again."""

    kind: Kind | None = None
    template: str = ""
    """A keyed digest of the shared beginning."""
    position: int = 0
    lost: int = 0


ALIKE = Divergence()
