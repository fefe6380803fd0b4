"""Does prefill throughput rise when several prompts are computed at once?

A busy period is from when a prompt is sent to a backend that computes none of ours, to when the
first tokens of all that were sent meanwhile are there. Its throughput is the uncached tokens over
its length: a backend that computes one prompt after the other shows the same however many there
are, which a mean over single requests would not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prefold.measurement.benefit.prefill import Rate, rate_of
from prefold.measurement.diagnosis.answer import Answer, Figure, Verdict, unknown
from prefold.measurement.diagnosis.sample import (
    Bounds,
    Clusters,
    Floats,
    Ints,
    Sample,
    bounds,
    ratio,
)

QUESTION = "Does prefill throughput rise with batch?"
KEY = "prefill_batching"
MIN_TOKENS = 32
"""A prompt of which less was computed is no load."""
GAIN = 1.1
"""From here on it is called a rise; as much less, a fall."""
BUCKETS = ((1, 1), (2, 3), (4, 7), (8, 10**9))


class Periods(NamedTuple):
    """Busy periods of one backend or several, one value for each."""

    seconds: Floats
    tokens: Floats
    requests: Ints


def prefill_batching(sample: Sample) -> Answer:
    """Against the line through periods of a single request, which no batch can have sped up."""
    found, expected = _all_periods(sample)
    several = np.flatnonzero((found.requests > 1) & ~np.isnan(expected))
    figures = _throughputs(found)
    if not len(several):
        return unknown(
            KEY,
            QUESTION,
            "prompts of different lengths, computed alone and together on one backend whose engine"
            " reports its cached tokens",
            *figures,
        )
    gain = bounds(Clusters(several, several), ratio(expected, found.seconds))
    if gain is None:
        needed = f"20 busy periods of several prompts; there are {len(several)}"
        return unknown(KEY, QUESTION, needed, *figures)
    figures.insert(0, gain.figure("one after the other over together", "ratio"))
    verdict = _verdict(gain)
    told = {
        Verdict.YES: "prompts together take less than one after the other",
        Verdict.NO: f"prompts together gain less than {GAIN - 1:.0%} over one after the other",
        Verdict.UNCLEAR: f"the gain may be less or more than {GAIN - 1:.0%}",
    }[verdict]
    together = found.requests[several].mean()
    return Answer(
        key=KEY,
        question=QUESTION,
        verdict=verdict,
        sentence=(
            f"{told}: {gain.value:.2f} times the throughput [{gain.low:.2f}, {gain.high:.2f}]"
            f" with {together:.1f} at a time ({gain.n:,} busy periods)"
        ),
        figures=figures,
    )


def _verdict(gain: Bounds) -> Verdict:
    if gain.low > GAIN:
        return Verdict.YES
    return Verdict.NO if gain.high < GAIN else Verdict.UNCLEAR


def _all_periods(sample: Sample) -> tuple[Periods, Floats]:
    """Of all backends, with the seconds that each period would take one after the other; NaN where
    a backend's line is not known."""
    names = np.array(sample.backends, dtype=object)
    found, expected = [], []
    for name in sorted(set(sample.backends)):
        on_it = np.where(names == name, 0.0, np.nan)
        places = sample.known(sample["sent"], sample["first"], sample["uncached"], on_it)
        places = places[sample["uncached"][places] >= MIN_TOKENS]
        if len(places):
            made = periods(*(sample[column][places] for column in ("sent", "first", "uncached")))
            found.append(made)
            expected.append(_one_by_one(made))
    if not found:
        return Periods(np.empty(0), np.empty(0), np.empty(0, dtype=np.int64)), np.empty(0)
    return Periods(*map(np.concatenate, zip(*found, strict=True))), np.concatenate(expected)


def periods(sent: Floats, first: Floats, tokens: Floats) -> Periods:
    order = np.argsort(sent, kind="stable")
    sent, first, tokens = sent[order], first[order], tokens[order]
    busy_until = np.maximum.accumulate(first)
    starts = np.flatnonzero(np.r_[True, sent[1:] >= busy_until[:-1]])
    ends = np.r_[starts[1:], len(sent)]
    return Periods(
        busy_until[ends - 1] - sent[starts],
        np.add.reduceat(tokens, starts),
        (ends - starts).astype(np.int64),
    )


def _one_by_one(found: Periods) -> Floats:
    """What is there once, and the seconds of all tokens."""
    alone = found.requests == 1
    rate: Rate | None = rate_of(found.tokens[alone], found.seconds[alone])
    if rate is None:
        return np.full(len(found.seconds), np.nan)
    once = max(rate.overhead_s, 0.0)
    return once + rate.seconds_per_token * found.tokens


def _throughputs(found: Periods) -> list[Figure]:
    figures = []
    for least, most in BUCKETS:
        places = np.flatnonzero((found.requests >= least) & (found.requests <= most))
        rate = bounds(Clusters(places, places), ratio(found.tokens, found.seconds))
        if rate is not None:
            many = f"{least}" if least == most else f"{least} to {most}"
            many = many if most < BUCKETS[-1][1] else f"{least} or more"
            figures.append(rate.figure(f"busy periods of {many} prompts", "tokens/s"))
    return figures
