"""What a token of prefill costs on a backend, learned from its rows: a line through times to first
token against uncached tokens.

What a saved token is worth is the line's slope. What does not grow with the prompt (network, queue,
the first step of decode) is not in it.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from prefold.measurement.benefit.timelines import OK
from prefold.measurement.ledger.reader import LedgerRow

Floats = NDArray[np.float64]

MIN_PAIRS = 10
MAX_ROWS = 4000
"""Of a backend with more, every so many is taken: the line does not become surer by others."""
SPREAD = 1.5
"""How much longer one of two prompts must be for their times to tell a slope from noise."""
REPETITIONS = 200
TAILS = (2.5, 97.5)


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """`low` and `high`: 95 % bounds of the slope, by resampling requests."""

    seconds_per_token: float
    low: float
    high: float
    overhead_s: float
    """Of a time to first token, what does not grow with the prompt."""
    requests: int


class SavedSeconds(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds are those of every backend's rate at once. `unpriced_tokens`: saved on backends that
    have no rate; they are in none of the seconds."""

    seconds: float
    low: float
    high: float
    unpriced_tokens: int


class Prefills:
    """What was seen of each backend. Mutable."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[array[float], array[float]]] = {}

    def add(self, row: LedgerRow) -> None:
        """Streamed answers whose engine said what was cached; from the last sending on."""
        if (
            row.outcome != OK
            or row.backend is None
            or not row.tokens
            or row.sent is None
            or row.prompt_tokens is None
            or row.reported_tokens is None
        ):
            return
        tokens, seconds = self._seen.setdefault(row.backend, (array("d"), array("d")))
        tokens.append(row.prompt_tokens - row.reported_tokens)
        seconds.append(row.tokens[0] - row.sent)

    def rates(self) -> dict[str, Rate]:
        """Of the backends that have one."""
        found = {name: rate_of(np.array(seen[0]), np.array(seen[1]))
                 for name, seen in sorted(self._seen.items())}  # fmt: skip
        return {name: rate for name, rate in found.items() if rate is not None}


def rate_of(uncached_tokens: Floats, seconds: Floats, seed: int = 0) -> Rate | None:
    """None where prompts are too few or too equal in length, and where a slope above zero is not
    sure."""
    step = -(-len(seconds) // MAX_ROWS) or 1
    x, y = uncached_tokens[::step], seconds[::step]
    slope = slope_of(x, y)
    if slope is None or slope <= 0:
        return None
    random = np.random.default_rng(seed)
    drawn = []
    for _ in range(REPETITIONS):
        picked = random.integers(0, len(x), len(x))
        drawn.append(slope_of(x[picked], y[picked]))
    known = [slope for slope in drawn if slope is not None]
    if len(known) < len(drawn):
        return None
    low, high = np.percentile(known, TAILS)
    if low <= 0:
        return None
    return Rate(
        seconds_per_token=slope,
        low=float(low),
        high=float(high),
        overhead_s=float(np.median(y - slope * x)),
        requests=len(seconds),
    )


def slope_of(x: Floats, y: Floats) -> float | None:
    """Seconds for a token: the median of slopes between the shorter half of the prompts and the
    longer (Theil's incomplete method, 1950), so that a queue now and then does not decide it."""
    order = np.argsort(x, kind="stable")
    half = len(x) // 2
    short, long = order[:half], order[len(x) - half :]
    apart = x[long] >= np.maximum(SPREAD * x[short], x[short] + 1)
    if apart.sum() < MIN_PAIRS:
        return None
    short, long = short[apart], long[apart]
    return float(np.median((y[long] - y[short]) / (x[long] - x[short])))


def saved_seconds(saved: Mapping[str, int], rates: Mapping[str, Rate]) -> SavedSeconds | None:
    """Of tokens saved, by backend; None where none of them has a price."""
    priced = [(tokens, rates[name]) for name, tokens in saved.items() if name in rates]
    unpriced = sum(tokens for name, tokens in saved.items() if name not in rates)
    if not priced and unpriced:
        return None
    return SavedSeconds(
        seconds=sum(tokens * rate.seconds_per_token for tokens, rate in priced),
        low=sum(tokens * rate.low for tokens, rate in priced),
        high=sum(tokens * rate.high for tokens, rate in priced),
        unpriced_tokens=unpriced,
    )
