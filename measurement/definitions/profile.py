"""What a definition is made of. A profile is a tool's set of them, as its code has it, so that a
figure can say whose it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from prefold.measurement.definitions.timeline import Chunk, Kind, Timeline

ANSWER = frozenset((Kind.CONTENT, Kind.REASONING, Kind.TOOL))
"""Chunks that bring something of an answer."""
CONTENT = frozenset((Kind.CONTENT,))
SPOKEN = frozenset((Kind.CONTENT, Kind.REASONING))
CHOICES = ANSWER | {Kind.ROLE, Kind.FINISH}
"""Chunks with a `choices` entry, whatever is in it."""


@dataclass(frozen=True, slots=True)
class View:
    """A timeline as a tool looks at it. `accepted` are the chunks that it takes for tokens, in
    order; seconds are from the request's being sent."""

    timeline: Timeline
    accepted: Sequence[Chunk]
    output_tokens: int | None

    @property
    def first_s(self) -> float | None:
        return self.accepted[0].t - self.timeline.sent if self.accepted else None

    @property
    def last_s(self) -> float | None:
        return self.accepted[-1].t - self.timeline.sent if self.accepted else None

    @property
    def body_s(self) -> float:
        return self.timeline.ended - self.timeline.sent

    @property
    def gaps_s(self) -> list[float]:
        """One for each accepted chunk after the first, however many tokens are in it."""
        return [after.t - before.t for before, after in pairwise(self.accepted)]

    @property
    def prompt_tokens(self) -> int | None:
        return self.timeline.usage.prompt_tokens if self.timeline.usage is not None else None


Samples = Sequence[float]
"""Of one request: none where it is not defined for it, one, or one for each gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """`of` gives seconds where `unit` is ms. `weight`: how many times each sample counts."""

    name: str
    unit: str
    definition: str
    of: Callable[[View], Samples]
    weight: Callable[[View], int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """`source` is what its definitions were read from. `accepts` are the kinds of chunks that count
    as tokens, `keeps_empty` whether also those without text do. `window` names the one of the two
    windows that the tool divides by."""

    name: str
    version: str
    source: str
    accepts: frozenset[Kind]
    counts: Callable[[Timeline, Sequence[Chunk]], int | None]
    metrics: tuple[Metric, ...]
    window: str
    keeps_empty: bool = False
    remarks: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.name}@{self.version}"

    def view(self, timeline: Timeline) -> View:
        chunks = timeline.of(self.accepts)
        accepted = chunks if self.keeps_empty else [chunk for chunk in chunks if not chunk.empty]
        return View(timeline, accepted, self.counts(timeline, accepted))


# How tools count the tokens of an answer.


def tokens_in(timeline: Timeline, accepted: Sequence[Chunk]) -> int | None:
    """A tool with a tokenizer of its own: here the tokens of the chunks it looks at; the engine's
    count where those are not known."""
    counts = [chunk.tokens for chunk in accepted]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) and counts else _reported(timeline)


def tokens_reported(timeline: Timeline, accepted: Sequence[Chunk]) -> int | None:
    """The engine's count; without one as `tokens_in`."""
    reported = _reported(timeline)
    return tokens_in(timeline, accepted) if reported is None else reported


def tokens_reported_or_chunks(timeline: Timeline, accepted: Sequence[Chunk]) -> int | None:
    reported = _reported(timeline)
    return len(accepted) if reported is None else reported


def tokens_in_and_bos(timeline: Timeline, accepted: Sequence[Chunk]) -> int | None:
    """A tokenizer that puts its beginning-of-sequence token before the text, and counts it."""
    tokens = tokens_in(timeline, accepted)
    return None if tokens is None else tokens + 1


def _reported(timeline: Timeline) -> int | None:
    return timeline.usage.completion_tokens if timeline.usage is not None else None
