"""How well what one backend was expected to have cached agrees with what it reports, and whether
anything should be claimed of its cache. Pure: time is passed in.

Judged is what was claimed too much: that sends prompts where nothing is. What was claimed too
little (an answer's tokens, others' traffic) costs no prefill there, and is measured only.
"""

from __future__ import annotations

from enum import Enum

DECAY = 0.95
"""For each request: the latest twenty count for two thirds."""
MIN_TOKENS = 64
"""Expected or reported: of less, rounding to blocks is most of the error."""
MIN_REQUESTS = 20
TOO_MUCH = 0.5
"""Of the expected tokens, not there: above, a claim is wrong more often than right..."""
LITTLE = 0.2
"""...and below, it is good again. Between the two nothing changes."""
BAD_FOR_S = 60.0
"""Longer than it takes to correct the index after a flush or to a smaller cache."""
GOOD_FOR_S = 60.0
"""Doubled with each drop that follows a rise within MAX_GOOD_FOR_S, and at most that."""
MAX_GOOD_FOR_S = 3600.0
SILENT_ANSWERS = 8
"""In a row without a report: the engine does not report."""


class Change(Enum):
    NONE = "none"
    DROPPED = "dropped"
    RISEN = "risen"
    SILENT = "silent"
    HEARD = "heard"


class Prediction:
    """Mutable."""

    __slots__ = (
        "_drops",
        "_either",
        "_expected",
        "_good_for_s",
        "_requests",
        "_risen",
        "_silent",
        "_since",
        "_too_little",
        "_too_much",
        "trusted",
    )

    def __init__(self) -> None:
        self._good_for_s = GOOD_FOR_S
        self._drops = 0
        self._risen = float("-inf")
        self.trusted = True
        """Not: nothing should be claimed. What the index believes is still observed, so that it can
        rise again."""
        self._silent = 0
        self.begin_anew()

    def reset(self) -> None:
        """Another engine, or another model of its cache."""
        self.trusted = True
        self._silent = 0
        self.begin_anew()

    def begin_anew(self) -> None:
        """With the measuring; the verdict stays."""
        self._expected = self._either = self._too_much = self._too_little = 0.0
        self._requests = 0
        self._since: float | None = None
        """Since when what is measured speaks for a change."""

    @property
    def silent(self) -> bool:
        """The engine never says what was cached: nothing checks what is expected."""
        return self._silent >= SILENT_ANSWERS

    @property
    def error(self) -> float | None:
        """Tokens of error over tokens expected or reported, whichever are more, the latest most:
        from 0 to 1; None until something was to be compared."""
        if not self._requests:
            return None
        return (self._too_much + self._too_little) / self._either

    @property
    def too_much(self) -> float:
        """Of the tokens that were expected, the share that was not there."""
        return self._too_much / self._expected if self._expected else 0.0

    def unreported(self) -> Change:
        """An answer came without a word of what was cached."""
        self._silent += 1
        return Change.SILENT if self._silent == SILENT_ANSWERS else Change.NONE

    def observe(self, expected_tokens: int, reported_tokens: int, now: float) -> Change:
        """An answer, with what the index expected, claimed or not, and what was reported."""
        heard, self._silent = self.silent, 0
        change = Change.HEARD if heard else Change.NONE
        either = max(expected_tokens, reported_tokens)
        if either < MIN_TOKENS:
            return change
        error = expected_tokens - reported_tokens
        self._requests += 1
        self._expected = self._expected * DECAY + expected_tokens
        self._either = self._either * DECAY + either
        self._too_much = self._too_much * DECAY + max(error, 0)
        self._too_little = self._too_little * DECAY + max(-error, 0)
        return self._judge(now) or change

    def _judge(self, now: float) -> Change | None:
        if self.trusted:
            wanted, wait_s = self.too_much >= TOO_MUCH, BAD_FOR_S
        else:
            # Who expects nothing makes no mistake, and is not good for that.
            expects = self._expected >= self._either * LITTLE
            wanted, wait_s = expects and self.too_much <= LITTLE, self._good_for_s
        if not wanted or self._requests < MIN_REQUESTS:
            self._since = None
            return None
        if self._since is None:
            self._since = now
        if now - self._since < wait_s:
            return None
        return self._rise(now) if not self.trusted else self._drop(now)

    def _drop(self, now: float) -> Change:
        self._drops = self._drops + 1 if now - self._risen < MAX_GOOD_FOR_S else 1
        self._good_for_s = min(GOOD_FOR_S * 2.0 ** (self._drops - 1), MAX_GOOD_FOR_S)
        self.trusted = False
        self.begin_anew()
        return Change.DROPPED

    def _rise(self, now: float) -> Change:
        self._risen = now
        self.trusted = True
        self.begin_anew()
        return Change.RISEN
