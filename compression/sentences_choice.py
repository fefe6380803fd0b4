"""Which sentences stay, given how alike they are. Pure.

A sentence is worth what it stands for: sentences are chosen one by one, each time the one that
raises most how well all sentences of the group are represented by a chosen one (the facility
location objective of Lin and Bilmes, 2011, whose greedy maximum is within 1 - 1/e of the best).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from prefold.compression.words import Bools, Floats

REACH = 512  # sentences back that a repetition is looked for
DIGITS = 4  # of a similarity: what the shape of a batch changes is further behind


def similarities(left: Floats, right: Floats) -> Floats:
    """Cosines of unit rows, shape (left rows, right rows), rounded; opposites count as unlike."""
    return np.asarray(np.round(np.maximum(left @ right.T, 0.0), DIGITS), dtype=np.float64)


def repeated(
    vectors: Floats, facts: Sequence[Hashable], forced: Bools, least: float, reach: int = REACH
) -> Bools:
    """Which sentences say again what an earlier one that is not one of these says.

    Those at least `least` alike with equal `facts`; forced ones never. Whether a sentence is one
    depends on what is before it only.
    """
    again = np.zeros(len(vectors), dtype=np.bool_)
    for row in np.flatnonzero(~forced).tolist():
        since = max(0, row - reach)
        alike = similarities(vectors[row : row + 1], vectors[since:row])[0] >= least
        earlier = np.flatnonzero(alike & ~again[since:row]) + since
        again[row] = any(facts[other] == facts[row] for other in earlier.tolist())
    return again


def representative(alike: Floats, weights: Floats, forced: Bools, out: Bools, rate: float) -> Bools:
    """Which sentences of one group to keep: about `rate` of the weight, and at least one.

    Forced ones stay and count, but leave at least half the rate to the others. Those that are
    `out` go; they count in the weight and are to be represented. Of equals, the earlier stays.
    """
    total, held = float(weights.sum()), float(weights[forced].sum())
    budget = max(rate * total - held, rate / 2 * (total - held))
    keep = forced.copy()
    candidates = ~forced & ~out
    covered = alike[:, forced].max(axis=1, initial=0.0)
    spent = 0.0
    while candidates.any():
        gains = weights @ np.maximum(alike - covered[:, None], 0.0)
        best = int(np.argmax(np.where(candidates, np.round(gains, DIGITS), -1.0)))
        candidates[best] = False
        # The sentence that crosses the budget stays if that comes nearer to it.
        if spent + weights[best] / 2 <= budget or not keep.any():
            keep[best] = True
            spent += float(weights[best])
            covered = np.maximum(covered, alike[:, best])
    return keep
