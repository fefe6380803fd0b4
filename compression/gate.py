"""Whether to send a prompt shorter: the form with the least predicted time to first token. Pure.

A form is a version of the prompt: as it came, or with some of its texts compressed. For each place
(a backend) and each form

    TTFT = compressor's seconds + (queued tokens + uncached tokens of that form) / rate + overhead

with the rate and overhead that were learned there, and the uncached tokens by what its KV cache is
believed to hold of that form. Decode is left out: it reads as many tokens, or fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    PAYS = "pays"
    BELOW_MARGIN = "below_margin"  # it would gain something, but too little to believe in
    COSTS = "costs"  # a shorter form would be later, or no sooner
    NOTHING = "nothing"  # no text is left to decide about


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A backend: prefill tokens per second, what is queued there, and the seconds that do not grow
    with the prompt."""

    queued_tokens: float
    tokens_per_s: float
    overhead_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """`cached_tokens`: at each place, in their order. `ready_s`: until it can be sent, infinity for
    never."""

    tokens: float
    cached_tokens: Sequence[float]
    ready_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`form` is the number of the chosen one. Seconds to its first token, and to that of the first
    form, which is the one to fall back on."""

    form: int
    reason: Reason
    chosen_s: float
    fallback_s: float

    @property
    def gain_s(self) -> float:
        return self.fallback_s - self.chosen_s


def ttft_s(form: Form, places: Sequence[Place]) -> float:
    """At the best place; ValueError if there is none."""
    return form.ready_s + min(
        place.overhead_s
        + (place.queued_tokens + max(form.tokens - cached, 0.0)) / place.tokens_per_s
        for place, cached in zip(places, form.cached_tokens, strict=True)
    )


def decide(forms: Sequence[Form], places: Sequence[Place], margin_s: float) -> Verdict:
    """The first form is taken unless another one is sooner by more than the margin; of equals, the
    earlier in the order. Raises ValueError without forms or places."""
    times = [ttft_s(form, places) for form in forms]
    best = min(range(len(times)), key=times.__getitem__)
    fallback = times[0]
    if len(forms) == 1:
        return Verdict(form=0, reason=Reason.NOTHING, chosen_s=fallback, fallback_s=fallback)
    if best and fallback - times[best] > margin_s:
        return Verdict(form=best, reason=Reason.PAYS, chosen_s=times[best], fallback_s=fallback)
    reason = Reason.BELOW_MARGIN if best else Reason.COSTS
    return Verdict(form=0, reason=reason, chosen_s=fallback, fallback_s=fallback)
