"""Are inputs long, and is the time to the first token much larger than that to each further one?"""

from __future__ import annotations

import numpy as np

from prefold.measurement.diagnosis.answer import Answer, Figure, Verdict, above, unknown
from prefold.measurement.diagnosis.prefill import NEEDS, Prefill
from prefold.measurement.diagnosis.sample import Sample, bounds, clusters_needed, ratio

LONG_TOKENS = 2048
MUCH = 10.0
PERCENTILES = (50, 90, 99)


def inputs_long(sample: Sample, prefill: Prefill) -> Answer:
    """Long: half of the prompts or more have LONG_TOKENS."""
    key, question = "inputs_long", "Are inputs long?"
    of = sample.of(sample.known(sample["prompt"]))
    share = bounds(of, lambda places: float((sample["prompt"][places] >= LONG_TOKENS).mean()))
    if share is None:
        return unknown(key, question, clusters_needed(of, "a known prompt length"))
    lengths = np.percentile(sample["prompt"][of.places], PERCENTILES)
    figures = [share.figure(f"share of prompts of {LONG_TOKENS} tokens or more", "share")]
    figures += [
        Figure(name=f"prompt p{percent}", value=float(length), unit="tokens", n=share.n)
        for percent, length in zip(PERCENTILES, lengths, strict=True)
    ]
    whole = sample["last"] - sample["received"]
    spent = bounds(sample.of(sample.known(prefill.seconds, whole)), ratio(prefill.seconds, whole))
    if spent is None:
        told = f"the share of prefill in end-to-end time is unknown: needs {NEEDS}"
    else:
        figures.append(spent.figure("prefill in end-to-end time", "share"))
        told = (
            f"prefill is {spent.value:.0%} [{spent.low:.0%}, {spent.high:.0%}]"
            " of the time to the last token"
        )
    verdict = above(share.low, share.high, 0.5)
    return Answer(
        key=key,
        question=question,
        verdict=verdict,
        sentence=(
            f"half of the prompts have {lengths[0]:,.0f} tokens or more, one in ten"
            f" {lengths[1]:,.0f} ({share.n:,} requests); {told}"
        ),
        figures=figures,
    )


def first_token_late(sample: Sample) -> Answer:
    """Much: the mean TTFT is MUCH times the mean TPOT or more."""
    key, question = "ttft_much_larger_than_tpot", "Is TTFT much larger than TPOT?"
    ttft = sample["first"] - sample["received"]
    several = sample["output"] > 1
    tokens = np.where(several, sample["output"] - 1, np.nan)
    tpot = (sample["last"] - sample["first"]) / tokens
    of = sample.of(sample.known(ttft, tpot))
    times = bounds(of, ratio(ttft, tpot))
    if times is None:
        needed = clusters_needed(of, "a streamed answer of two tokens or more")
        return unknown(key, question, needed)
    whole = sample["last"] - sample["received"]
    share = bounds(of, ratio(ttft, whole))
    figures = [times.figure("mean TTFT over mean TPOT", "ratio")]
    figures += [
        Figure(name=name, value=float(values[of.places].mean()), unit="s", n=times.n)
        for name, values in (("mean TTFT", ttft), ("mean TPOT", tpot))
    ]
    if share is not None:
        figures.append(share.figure("TTFT in end-to-end time", "share"))
    verdict = above(times.low, times.high, MUCH)
    meaning = {
        Verdict.YES: "the wait is before the first token",
        Verdict.NO: "a first token costs about what a few more do",
        Verdict.UNCLEAR: f"it may be more or less than {MUCH:.0f}",
    }[verdict]
    return Answer(
        key=key,
        question=question,
        verdict=verdict,
        sentence=(
            f"a first token takes as long as {times.value:,.1f} further ones"
            f" [{times.low:,.1f}, {times.high:,.1f}] ({times.n:,} requests): {meaning}"
        ),
        figures=figures,
    )
