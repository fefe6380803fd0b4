"""What went wrong in compressors, counted by kind, and when the log is to hear of it.

A kind is a word of ours, or the name of an exception's class: messages may quote a text.
"""

from __future__ import annotations

from collections import Counter

from prefold.compression.worker.child import ChildGone

TELL_EVERY_S = 60.0
MAX_KINDS = 32
"""More kinds than these are counted as "other": some come from another machine."""
MAX_WORD = 64


class Faults:
    """Mutable. Pure: time is passed in."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        """By what failed (`process`, `text`) and kind."""
        self._told: dict[str, float] = {}
        self._untold: Counter[str] = Counter()

    def process(self, kind: str) -> None:
        """One ended, hung, or could not be opened; each is logged."""
        self._count("process", kind)

    def text(self, kind: str, now: float) -> tuple[str, int] | None:
        """One could not be compressed. Kind and number of those to be told of: at once, then once
        a minute for each kind; None: not now."""
        kind = self._count("text", kind)
        self._untold[kind] += 1
        last = self._told.get(kind)
        if last is not None and now - last < TELL_EVERY_S:
            return None
        self._told[kind] = now
        return kind, self._untold.pop(kind)

    def _count(self, what: str, kind: str) -> str:
        known = (what, kind) in self.counts
        word = kind.isidentifier() and len(kind) <= MAX_WORD
        if not known and (not word or len(self.counts) >= MAX_KINDS):
            kind = "other"
        self.counts[what, kind] += 1
        return kind


def kind_of(error: ChildGone | TimeoutError | OSError | UnicodeEncodeError) -> tuple[str, str]:
    """How a process failed: a word for the metric, and what the log says."""
    if isinstance(error, ChildGone):
        return error.cause, str(error)
    if isinstance(error, UnicodeEncodeError):  # it would quote the text: one with a lone surrogate
        return "no_text", "a text that is none"
    if isinstance(error, TimeoutError):
        return "hung", "it took too long"
    return "cannot_start", f"it cannot be started: {error}"
