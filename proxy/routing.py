"""Which backend gets a request: a pure function of what is believed of each. Times are estimates.

Knows nothing of prompts, caches or connections; it is given their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec
from xxhash import xxh3_64_intdigest


class Policy(StrEnum):
    """`prefix` is the one to use; the others are there to be compared with."""

    PREFIX = "prefix"
    ROUND_ROBIN = "round_robin"
    LEAST_LOAD = "least_load"
    RENDEZVOUS = "rendezvous"
    RANDOM = "random"


class Reason(StrEnum):
    """What decided."""

    PREFIX = "prefix"
    """It holds as much of the prompt as any, and clearly more than some other."""
    LOAD = "load"
    """Less to wait for or to evict there."""
    RENDEZVOUS = "rendezvous"
    """Others are as good; the hash of the prompt's beginning chose."""
    ROUND_ROBIN = "round_robin"
    RANDOM = "random"
    ONLY_ONE = "only_one"


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A backend that may be chosen, as it is now."""

    name: str
    cached_tokens: int
    """Of this prompt, expected to be reused there."""
    evicted_reuse: float
    """Tokens of others that would be evicted for it, and are expected to be asked for again."""
    queued_tokens: int
    """That are still to be computed of requests that were sent there before."""
    in_flight: int
    """Requests of ours there, in whatever phase."""
    prefill_tokens_per_s: float
    """As learned; greater than 0."""
    waiting: int = 0
    """Requests of anybody that wait in the engine, as it reports; 0 if it does not."""


class RequestShape(msgspec.Struct, frozen=True, kw_only=True):
    """`affinity` is the same for prompts that begin alike (`Prefix.affinity`). `choose` fills in
    `held_tokens`, the most of it that any candidate holds, and `crowd`, from 0 to 1: the mean of
    the candidates' queues over the prompt's length. The longest of them is left out of it: it may
    be the very reason to copy a prefix."""

    prompt_tokens: int
    affinity: int
    held_tokens: int = 0
    crowd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What the estimates are worth."""

    eviction_price: float = 1.0
    """Tokens of prefill for each evicted token that is expected to be asked for again: it is what
    that one will have to compute. 0: each request looks only at itself."""
    copy_price: float = 2.0
    """The same for each token that is computed although another backend holds it: a second copy
    takes room that other prefixes will need, and on an idle fleet delays nobody."""
    crowd_price: float = 5.0
    """What is added to it on a busy fleet: there a token that is computed again delays all who come
    before the queues are empty. In full where the mean queue is as long as the prompt, in
    proportion below, and never more, so that a hot prefix is copied in the end."""
    decode_penalty_s: float = 0.02
    """Delay of prefill by each request in flight: prefill and decode share the engine's steps."""
    noise_relative: float = 0.02
    noise_s: float = 0.005
    """Scores no further than the greater of the two from the best are as good as the best."""
    noise_work: float = 0.05
    """Work, and prefixes held, are about equal up to this part of the prompt's tokens."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """`available_cached_tokens` is the best over all candidates, whoever was chosen; `score_s` is
    the score of the chosen one under the prefix policy, whatever the policy was."""

    backend: str
    reason: Reason
    expected_cached_tokens: int
    available_cached_tokens: int
    score_s: float


def choose(
    policy: Policy,
    candidates: Sequence[Candidate],
    prompt: RequestShape,
    turn: int,
    weights: Weights,
) -> Decision:
    """The order of the candidates is of no importance. `turn` counts the caller's requests.

    Raises ValueError if there are no candidates.
    """
    if not candidates:
        raise ValueError("no candidates")
    prompt = among(prompt, candidates)
    if len(candidates) == 1:
        chosen, reason = candidates[0], Reason.ONLY_ONE
    elif policy is Policy.ROUND_ROBIN:
        in_turn = sorted(candidates, key=lambda candidate: candidate.name)
        chosen, reason = in_turn[turn % len(in_turn)], Reason.ROUND_ROBIN
    elif policy is Policy.RANDOM:
        # By the prompt too: callers that count alike would all choose alike.
        lot = xxh3_64_intdigest(turn.to_bytes(8, "little"), prompt.affinity)
        chosen, reason = rendezvous(candidates, lot), Reason.RANDOM
    elif policy is Policy.RENDEZVOUS:
        chosen, reason = rendezvous(candidates, prompt.affinity), Reason.RENDEZVOUS
    elif policy is Policy.LEAST_LOAD:
        chosen, reason = _least_load(candidates, prompt)
    else:
        chosen, reason = _least_score(candidates, prompt, weights)
    return Decision(
        backend=chosen.name,
        reason=reason,
        expected_cached_tokens=chosen.cached_tokens,
        available_cached_tokens=prompt.held_tokens,
        score_s=score_s(chosen, prompt, weights),
    )


def among(prompt: RequestShape, candidates: Sequence[Candidate]) -> RequestShape:
    """The prompt, with what is to be known of all of these together."""
    queues = [candidate.queued_tokens for candidate in candidates]
    mean = (sum(queues) - max(queues)) / max(len(queues) - 1, 1)
    return RequestShape(
        prompt_tokens=prompt.prompt_tokens,
        affinity=prompt.affinity,
        held_tokens=max([candidate.cached_tokens for candidate in candidates]),
        crowd=min(mean / max(prompt.prompt_tokens, 1), 1.0),
    )


def work_tokens(candidate: Candidate, prompt: RequestShape, weights: Weights) -> float:
    """What this request itself costs there: its uncached tokens, the price of their room, and on a
    busy fleet that of computing again what another one holds.

    Where no candidate holds them and there is room, tokens cost nothing but themselves: new
    prefixes are attracted by room, and where there is none, by what nobody is expected to ask for.
    A second copy of what another one holds pays all the same: it takes the room that the next
    prefix will need.
    """
    uncached = max(prompt.prompt_tokens - candidate.cached_tokens, 0)
    copied = max(prompt.held_tokens - candidate.cached_tokens, 0)
    work = uncached + weights.eviction_price * candidate.evicted_reuse
    return work + (weights.copy_price + weights.crowd_price * prompt.crowd) * copied


def score_s(candidate: Candidate, prompt: RequestShape, weights: Weights) -> float:
    """Seconds of prefill until its first token, with what it costs others; less is better.

    score = (queued tokens + own work) / rate + max(in flight, waiting) x decode penalty
    """
    tokens = candidate.queued_tokens + work_tokens(candidate, prompt, weights)
    running = max(candidate.in_flight, candidate.waiting)
    return tokens / candidate.prefill_tokens_per_s + running * weights.decode_penalty_s


def rendezvous(candidates: Sequence[Candidate], affinity: int) -> Candidate:
    """Highest random weight: all who ask alike agree, and only 1/n moves when a backend leaves."""
    return max(
        candidates,
        key=lambda candidate: (
            xxh3_64_intdigest(candidate.name.encode(), affinity),
            candidate.name,
        ),
    )


def _least_score(
    candidates: Sequence[Candidate], prompt: RequestShape, weights: Weights
) -> tuple[Candidate, Reason]:
    """Near-ties are settled in two steps.

    Queues and rates are estimates, so a small difference in time is noise. What is cached is not:
    a short prompt's warm prefix is worth only milliseconds, and would be lost to a hash. So among
    those near the best, first those with the least work of their own, and only where that is about
    equal too, rendezvous: replicas then agree, and prompts that begin alike meet.
    """
    scores = [score_s(candidate, prompt, weights) for candidate in candidates]
    best = min(scores)
    limit = best + max(weights.noise_s, weights.noise_relative * best)
    near = [
        candidate for candidate, score in zip(candidates, scores, strict=True) if score <= limit
    ]
    noise = weights.noise_work * prompt.prompt_tokens
    if len(near) > 1:
        work = [work_tokens(candidate, prompt, weights) for candidate in near]
        most = min(work) + noise
        near = [candidate for candidate, own in zip(near, work, strict=True) if own <= most]
    chosen = near[0] if len(near) == 1 else rendezvous(near, prompt.affinity)
    held = [candidate.cached_tokens for candidate in candidates]
    if chosen.cached_tokens + noise >= max(held) and chosen.cached_tokens > min(held) + noise:
        return chosen, Reason.PREFIX
    return chosen, Reason.LOAD if len(near) == 1 else Reason.RENDEZVOUS


def _least_load(candidates: Sequence[Candidate], prompt: RequestShape) -> tuple[Candidate, Reason]:
    """The shortest queue in seconds, then the fewest requests, then rendezvous."""

    def load(candidate: Candidate) -> tuple[float, int]:
        return candidate.queued_tokens / candidate.prefill_tokens_per_s, candidate.in_flight

    least = min(map(load, candidates))
    equal = [candidate for candidate in candidates if load(candidate) == least]
    if len(equal) > 1:
        return rendezvous(equal, prompt.affinity), Reason.RENDEZVOUS
    return equal[0], Reason.LOAD
