"""What happened to one request, as its client saw it: the raw form from which every definition is
computed, and the reader of files that hold one a line.

No figure is computed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec


class Kind(StrEnum):
    """What an event of a stream brought."""

    ROLE = "role"  # the first chunk of most servers: a role, no text
    CONTENT = "content"
    REASONING = "reasoning"
    TOOL = "tool"
    FINISH = "finish"  # a finish_reason, no text
    USAGE = "usage"  # counts, no choices
    DONE = "done"  # [DONE]


class Chunk(msgspec.Struct, frozen=True):
    """`t` is seconds on the clock of the timeline's `sent`. `tokens` are those in it, if known;
    `text` is only looked at to see whether it is empty."""

    t: float
    kind: Kind
    tokens: int | None = None
    text: str | None = None

    @property
    def empty(self) -> bool:
        return self.text == "" if self.text is not None else self.tokens == 0


class CachedDetails(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class Usage(msgspec.Struct, frozen=True):
    """As engines report it; `cached_tokens` may stand in `prompt_tokens_details`, as OpenAI has it,
    or beside the others."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    prompt_tokens_details: CachedDetails | None = None

    @property
    def cached(self) -> int | None:
        """None: not reported, which is not zero."""
        details = self.prompt_tokens_details
        if self.cached_tokens is None and details is not None:
            return details.cached_tokens
        return self.cached_tokens


class Timeline(msgspec.Struct, frozen=True):
    """One request. Times are seconds of one clock, the same for all requests of a file; `end` is
    that of the body, where it is later than the last event. `error`: it failed, and why."""

    sent: float
    chunks: tuple[Chunk, ...] = ()
    usage: Usage | None = None
    end: float | None = None
    error: str | None = None

    @property
    def ended(self) -> float:
        """The end of the body: of [DONE], or of what came last."""
        last = self.chunks[-1].t if self.chunks else self.sent
        return max(last, self.end) if self.end is not None else last

    def of(self, kinds: frozenset[Kind]) -> list[Chunk]:
        return [chunk for chunk in self.chunks if chunk.kind in kinds]


def chunks_of(
    tokens: Sequence[float],
    token_kinds: Sequence[tuple[int, str]],
    others: Sequence[tuple[float, str]],
    start: float = 0.0,
) -> tuple[Chunk, ...]:
    """In order of time. `token_kinds` says from which token event on they are of which kind;
    without one they are content. Kinds that no definition looks at are left out."""
    kinds, kind = dict(token_kinds), Kind.CONTENT.value
    events = []
    for number, moment in enumerate(tokens):
        kind = kinds.get(number, kind)
        events.append((moment, kind))
    merged = sorted([*events, *others], key=lambda event: event[0])
    return tuple(Chunk(start + moment, Kind(name)) for moment, name in merged if name in _KINDS)


class TimelineError(Exception):
    """A line that is no timeline; the message says which and why."""


def read_timelines(path: Path) -> Iterator[Timeline]:
    """One JSON object a line; empty lines are skipped. Raises TimelineError, and OSError."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _timeline(line, f"{path.name}:{number}")


def _timeline(line: bytes, where: str) -> Timeline:
    try:
        timeline = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TimelineError(f"{where}: {error}") from None
    before = timeline.sent
    for number, chunk in enumerate(timeline.chunks):
        if chunk.t < before:
            raise TimelineError(f"{where}: chunks[{number}].t is before what came before it")
        before = chunk.t
    return timeline


_DECODER = msgspec.json.Decoder(Timeline)
_KINDS = frozenset(kind.value for kind in Kind)
