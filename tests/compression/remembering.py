"""A scorer that is asked once: scores do not depend on the rate, so other rates cost nothing."""

from __future__ import annotations

from collections.abc import Sequence

from prefold.compression.scored import Group, Scorer
from prefold.compression.words import Floats

Key = tuple[str, bytes, bytes]


class Remembering:
    """Holds the scores of all groups that it was asked about."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self._known: dict[Key, Floats] = {}
        self.name = scorer.name
        self.revision = scorer.revision
        self.options = scorer.options

    def segment(self, run: str) -> Sequence[int]:
        return self._scorer.segment(run)

    def score(self, groups: Sequence[Group]) -> list[Floats]:
        keys = [(one.text, one.starts.tobytes(), one.ends.tobytes()) for one in groups]
        new = {key: one for key, one in zip(keys, groups, strict=True) if key not in self._known}
        if new:
            scores = self._scorer.score(list(new.values()))
            self._known.update(zip(new, scores, strict=True))
        return [self._known[key].copy() for key in keys]
