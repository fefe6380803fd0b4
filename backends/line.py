"""Prompts of ours that a backend has not answered with a first token yet, in the order in which
they were sent. An engine computes prompts in that order, so it is at work on the first of them.
"""

from __future__ import annotations


class Line:
    """Mutable."""

    __slots__ = ("_since", "_tokens", "total")

    def __init__(self) -> None:
        self._tokens: dict[int, int] = {}
        """By the identity of who stands there."""
        self._since = 0.0
        """When the first one came to be the first."""
        self.total = 0

    def join(self, who: object, tokens: int, now: float) -> None:
        """`tokens` that are to be computed; with 0 there is nothing to wait for."""
        if tokens:
            if not self._tokens:
                self._since = now
            self._tokens[id(who)] = tokens
            self.total += tokens

    def leave(self, who: object, now: float) -> None:
        """No matter if it is not there. After one that had its token the next one is computed; that
        it was the one at work is not certain, but it must have come to an end by now."""
        tokens = self._tokens.pop(id(who), None)
        if tokens is not None:
            self.total -= tokens
            self._since = now

    def done_tokens(self, tokens_per_s: float, now: float) -> int:
        """What should be computed by now of the first one; never all of it, since its first token
        would be here."""
        first = next(iter(self._tokens.values()), 0)
        return min(int((now - self._since) * tokens_per_s), first)
