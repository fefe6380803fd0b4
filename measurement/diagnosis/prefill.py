"""What a token of prefill costs on each backend: the line of `benefit.prefill`, through seconds
from sending to the first token against the tokens that the engine had not cached.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np

from prefold.measurement.benefit.prefill import Rate, rate_of
from prefold.measurement.diagnosis.sample import Floats, Sample

NEEDS = (
    "prompts of different lengths on a backend whose engine reports its cached tokens, so that"
    " seconds grow with tokens beyond doubt"
)


@dataclass(frozen=True, slots=True)
class Prefill:
    """By backend, those that have a rate; and the seconds of each request, NaN on others."""

    rates: dict[str, Rate]
    seconds: Floats


def prefill_of(sample: Sample) -> Prefill:
    server = sample["first"] - sample["sent"]
    names = np.array(sample.backends, dtype=object)
    rates: dict[str, Rate] = {}
    seconds = np.full(len(sample), nan)
    for name in sorted(set(sample.backends)):
        places = sample.known(np.where(names == name, server, nan), sample["uncached"])
        rate = rate_of(sample["uncached"][places], server[places])
        if rate is not None:
            rates[name] = rate
            # The line is of the median: of a prompt that was faster it explains all there is.
            taken = sample["uncached"][places] * rate.seconds_per_token
            seconds[places] = np.minimum(taken, server[places])
    return Prefill(rates, seconds)
