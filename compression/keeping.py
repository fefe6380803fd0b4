"""From scores to what stays: the best words of each group, and the spans that they make.

Pure. Knows nothing of models or languages.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from prefold.compression.compressor import Spans
from prefold.compression.words import Bools, Floats, Ints, Words

FEW = 6  # words that may be cut: a group of fewer (a heading, a label) stays whole


def best(scores: Floats, weights: Floats, forced: Bools, rate: float) -> Bools:
    """Which words of one group to keep: about `rate` of the weight, those of the highest score.

    Forced words stay and count, but leave at least half the rate to the others. Of equals, the
    earlier stays. All arrays have one row for each word.
    """
    free = np.flatnonzero(~forced)
    if len(free) < FEW or rate >= 1:
        return np.ones(len(scores), dtype=np.bool_)
    total, held = float(weights.sum()), float(weights[forced].sum())
    budget = max(rate * total - held, rate / 2 * (total - held))
    order = free[np.argsort(-scores[free], kind="stable")]
    spent = np.cumsum(weights[order])
    # The word that crosses the budget stays if that comes nearer to it.
    keep = forced.copy()
    keep[order[spent - weights[order] / 2 <= budget]] = True
    keep[order[0]] = True  # no paragraph vanishes
    return keep


def best_of_groups(
    scores: Floats, weights: Floats, forced: Bools, bounds: Ints, rate: float
) -> Bools:
    """`best` for each group; `bounds` as `groups_of` gives them."""
    keep = np.ones(len(scores), dtype=np.bool_)
    edges = bounds.tolist()
    for first, after in pairwise(edges):
        rows = slice(first, after)
        keep[rows] = best(scores[rows], weights[rows], forced[rows], rate)
    return keep


def spans_of(words: Words, keep: Bools) -> Spans:
    """The spans to keep: words with the white space before them, and sentences' ends.

    Between two kept words stays the white space before the second, or some that was passed between
    them if that ended a line or a paragraph. A sentence of which something stays keeps its end.
    """
    if not len(words):
        return ((0, len(words.text)),) if words.text else ()
    spans = _Spans(words.text)
    rows = zip(
        keep.tolist(),
        words.spaces.tolist(),
        words.starts.tolist(),
        words.ends.tolist(),
        words.tails.tolist(),
        words.breaks.tolist(),
        strict=True,
    )
    started = False  # something of this sentence stays
    for kept, space, start, end, tail, breaks in rows:
        started = started and not breaks
        if kept:
            spans.word(space, start, end)
        else:
            spans.pass_by(space, start)
            if started and tail < end:
                spans.mark(tail, end)
        started = (started or kept) and tail == end
    spans.pass_by(int(words.ends[-1]), len(words.text))
    spans.finish()
    return tuple(spans.done)


class _Spans:
    """Kept spans, joined where they touch, and the best white space passed since the last one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.done: list[tuple[int, int]] = []
        self._space = (0, 0)

    def add(self, start: int, end: int) -> None:
        if start == end:
            return
        if self.done and self.done[-1][1] == start:
            self.done[-1] = (self.done[-1][0], end)
        else:
            self.done.append((start, end))

    def word(self, space: int, start: int, end: int) -> None:
        self.pass_by(space, start)
        if self.done or self._space[0] == 0:  # no space before the first word that was none
            self.add(*self._space)
        self.add(start, end)
        self._space = (end, end)

    def mark(self, start: int, end: int) -> None:
        self.add(start, end)
        self._space = (end, end)

    def pass_by(self, space: int, start: int) -> None:
        """The later of two spaces is taken, unless the earlier parts more."""
        if space < start and self._parts(space, start) >= self._parts(*self._space):
            self._space = (space, start)

    def finish(self) -> None:
        """White space at the end of the text stays."""
        start, end = self._space
        if end == len(self._text):
            self.add(start, end)

    def _parts(self, start: int, end: int) -> int:
        """0 words, 1 lines, 2 paragraphs."""
        return min(self._text.count("\n", start, end), 2)
