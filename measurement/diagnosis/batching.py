"""Does prefill throughput rise when several prompts are computed at once?

A busy period is from when a prompt is sent to a backend that computes none of ours, to when the
first tokens of all that were sent meanwhile are there. It is compared with what it would have been
one prompt after the other, by a line through the periods of a single prompt: a backend that queues
them takes just that, however much their windows overlap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prefold.measurement.benefit.prefill import Rate, rate_of
from prefold.measurement.diagnosis.answer import Answer, Figure, Verdict, above, unknown
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
"""From here on it is called a rise, or from half of what there was to gain."""
ROOM = 1.1
"""Where all at once would have gained less, nothing can be told."""
BUCKETS = ((1, 1), (2, 3), (4, 7), (8, 10**9))


class Periods(NamedTuple):
    """Busy periods, one value for each. `one_by_one` and `at_once`: seconds that they would have
    taken; NaN where a backend's line is not known."""

    seconds: Floats
    tokens: Floats
    requests: Ints
    one_by_one: Floats
    at_once: Floats


NOTHING: Floats = np.empty(0)
NONE = Periods(NOTHING, NOTHING, np.empty(0, dtype=np.int64), NOTHING, NOTHING)


def prefill_batching(sample: Sample) -> Answer:
    found = _all_periods(sample)
    several = np.flatnonzero((found.requests > 1) & ~np.isnan(found.one_by_one))
    figures = _throughputs(found)
    if not len(several):
        needed = (
            "prompts of different lengths, computed alone and together on one backend whose engine"
            " reports its cached tokens"
        )
        return unknown(KEY, QUESTION, needed, *figures)
    gain = bounds(Clusters(several, several), ratio(found.one_by_one, found.seconds))
    if gain is None:
        needed = f"20 busy periods of several prompts; there are {len(several)}"
        return unknown(KEY, QUESTION, needed, *figures)
    room = ratio(found.one_by_one, found.at_once)(several)
    figures = [
        gain.figure("one after the other over together", "ratio"),
        Figure(name="the same if all were computed at once", value=room, unit="ratio", n=gain.n),
        *figures,
    ]
    verdict = _verdict(gain, room)
    told = {
        Verdict.YES: "prompts together take less than one after the other",
        Verdict.NO: "prompts together take about as long as one after the other",
        Verdict.UNCLEAR: "prompts together may gain or not",
    }[verdict]
    return Answer(
        key=KEY,
        question=QUESTION,
        verdict=verdict,
        sentence=(
            f"{told}: {gain.value:.2f} times the throughput [{gain.low:.2f}, {gain.high:.2f}], of"
            f" {room:.2f} at best, in {gain.n:,} busy periods of"
            f" {found.requests[several].mean():.1f} prompts"
        ),
        figures=figures,
    )


def _verdict(gain: Bounds, room: float) -> Verdict:
    if room < ROOM:
        return Verdict.UNCLEAR
    return above(gain.low, gain.high, min(GAIN, (1 + room) / 2))


def _all_periods(sample: Sample) -> Periods:
    """Of all backends."""
    names = np.array(sample.backends, dtype=object)
    found = [NONE]
    for name in sorted(set(sample.backends)):
        on_it = np.where(names == name, 0.0, np.nan)
        places = sample.known(sample["sent"], sample["first"], sample["uncached"], on_it)
        places = places[sample["uncached"][places] >= MIN_TOKENS]
        if len(places):
            columns = (sample[column][places] for column in ("sent", "first", "uncached"))
            found.append(periods(*columns))
    return Periods(
        np.concatenate([one.seconds for one in found]),
        np.concatenate([one.tokens for one in found]),
        np.concatenate([one.requests for one in found]),
        np.concatenate([one.one_by_one for one in found]),
        np.concatenate([one.at_once for one in found]),
    )


def periods(sent: Floats, first: Floats, tokens: Floats) -> Periods:
    """Of one backend's prompts, in any order."""
    order = np.argsort(sent, kind="stable")
    sent, first, tokens = sent[order], first[order], tokens[order]
    busy_until = np.maximum.accumulate(first)
    starts = np.flatnonzero(np.r_[True, sent[1:] >= busy_until[:-1]])
    ends = np.r_[starts[1:], len(sent)]
    seconds = busy_until[ends - 1] - sent[starts]
    summed, requests = np.add.reduceat(tokens, starts), ends - starts
    alone = requests == 1
    rate = rate_of(summed[alone], seconds[alone])
    unknown = np.full(len(seconds), np.nan)
    expected = (unknown, unknown)
    if rate is not None:
        spans = [slice(*span) for span in zip(starts, ends, strict=True)]
        both = np.array([_expected(sent[span], tokens[span], rate) for span in spans])
        expected = (both[:, 0], both[:, 1])
    return Periods(seconds, summed, requests, *expected)


def _expected(sent: Floats, tokens: Floats, rate: Rate) -> tuple[float, float]:
    """Seconds one after the other, and all at once. What does not grow with a prompt (the network,
    say) is not waited for by the next one."""
    once = max(rate.overhead_s, 0.0)
    takes = rate.seconds_per_token * tokens
    free = sent[0]
    for at, seconds in zip(sent, takes, strict=True):
        free = max(free, at) + seconds
    return free + once - sent[0], float((sent + takes).max()) + once - sent[0]


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
