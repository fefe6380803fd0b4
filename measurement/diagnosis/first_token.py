"""How much of the time to the first token is queue, prefill and network.

What is ours is measured: received to leased, of which the queue. What is the engine's is told apart
by a line through seconds from sending to the first token against uncached tokens: what grows with
them is prefill; of the rest, what the fastest requests take too is network and the first step, and
what others take beyond that is waiting at the engine. The last two are estimates.
"""

from __future__ import annotations

import numpy as np

from prefold.measurement.diagnosis.answer import Answer, Figure, Verdict, unknown
from prefold.measurement.diagnosis.prefill import NEEDS, Prefill
from prefold.measurement.diagnosis.sample import Bounds, Floats, Sample, bounds, ratio

FASTEST = 5.0
"""Percentile of what does not grow with the prompt: below is luck."""
TINY_TOKENS = 64
MIN_TINY = 20
QUESTION = "How much of TTFT is queue, prefill, network?"
PARTS = ("prefill", "engine_queue", "proxy_queue", "network", "proxy")


def first_token_parts(sample: Sample, prefill: Prefill) -> Answer:
    ttft = sample["first"] - sample["received"]
    server = sample["first"] - sample["sent"]
    spans = _spans(sample, prefill, server)
    of = sample.of(sample.known(ttft, *spans.values()))
    shares = {name: bounds(of, ratio(span, ttft)) for name, span in spans.items()}
    known = {name: share for name, share in shares.items() if share is not None}
    if len(known) < len(shares):
        ours = bounds(sample.of(sample.known(ttft, sample["queue"])), ratio(sample["queue"], ttft))
        told = [] if ours is None else [ours.figure("our queue in TTFT", "share")]
        return unknown("ttft_parts", QUESTION, NEEDS, *told)
    figures = [share.figure(f"{NAMES[name]} in TTFT", "share") for name, share in known.items()]
    figures.append(
        Figure(name="mean TTFT", value=float(ttft[of.places].mean()), unit="s", n=len(of.places))
    )
    figures += _network(sample, server)
    largest = max(known, key=lambda name: known[name].value)
    sure = all(known[largest].low > share.high for name, share in known.items() if name != largest)
    return Answer(
        key="ttft_parts",
        question=QUESTION,
        verdict=Verdict.KNOWN if sure else Verdict.UNCLEAR,
        sentence=(
            f"{'most' if known[largest].low > 0.5 else 'the largest part'} of TTFT is"
            f" {NAMES[largest]}{'' if sure else ', which is not sure'}: "
            + ", ".join(f"{NAMES[name]} {_said(known[name])}" for name in PARTS)
            + f" ({len(of.places):,} requests)"
        ),
        figures=figures,
    )


NAMES = {
    "prefill": "prefill",
    "engine_queue": "waiting at the engine",
    "proxy_queue": "our queue",
    "network": "network and first step",
    "proxy": "our own work",
}


def _spans(sample: Sample, prefill: Prefill, server: Floats) -> dict[str, Floats]:
    """Seconds of each request; together they are its time to first token."""
    rest = server - prefill.seconds
    fixed = np.full(len(sample), np.nan)
    names = np.array(sample.backends, dtype=object)
    for name in prefill.rates:
        places = sample.known(np.where(names == name, rest, np.nan))
        fixed[places] = np.percentile(rest[places], FASTEST)
    fixed = np.minimum(fixed, rest)
    # Between the leasing and the last sending there is nothing but attempts that failed.
    before = sample["sent"] - sample["received"]
    return {
        "prefill": prefill.seconds,
        "engine_queue": rest - fixed,
        "proxy_queue": sample["queue"],
        "network": fixed,
        "proxy": before - sample["queue"],
    }


def _network(sample: Sample, server: Floats) -> list[Figure]:
    """Bounds of it from above: the head of the answer, and the first token, of tiny prompts."""
    tiny = np.where(sample["uncached"] <= TINY_TOKENS, 0.0, np.nan)
    figures = []
    for name, span in (("head", sample["headers"] - sample["sent"]), ("first token", server)):
        places = sample.known(span, tiny)
        if len(places) >= MIN_TINY:
            figures.append(
                Figure(
                    name=f"sent to {name} of prompts of at most {TINY_TOKENS} uncached tokens, p50",
                    value=float(np.median(span[places])),
                    unit="s",
                    n=len(places),
                )
            )
    return figures


def _said(share: Bounds) -> str:
    return f"{share.value:.0%} [{share.low:.0%}, {share.high:.0%}]"
