"""From candidates and a prompt to the backend that is to serve it: the index is asked, `routing`
decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from prefold.backends.backend import Backend, Mode
from prefold.backends.pool import BackendPool
from prefold.measurement.record import RequestRecord
from prefold.prefix_index.index import NOTHING, PrefixIndex, PrefixMatch
from prefold.prefix_index.prefix import Prefix
from prefold.proxy.prompt import Prompt
from prefold.proxy.routing import Candidate, Decision, Policy, RequestShape, Weights, choose

AFFINITY_TOKENS = 256
"""That must be equal for prompts to be hashed to one place, after what is held already."""


class Selected(msgspec.Struct, frozen=True):
    """`prefix` is what the index is to be told; None where the prompt is not looked into, or where
    it comes later, in `whole`."""

    backend: Backend
    prefix: Prefix | None
    uncached_tokens: int
    whole: asyncio.Future[Prefix] | None = None


class Selector:
    def __init__(
        self,
        *,
        pool: BackendPool,
        index: PrefixIndex,
        policy: Policy,
        weights: Weights,
        clock: Callable[[], float],
    ) -> None:
        self._pool = pool
        self._index = index
        self._policy = policy
        self._weights = weights
        self._clock = clock
        self._turn = 0

    def select(
        self,
        candidates: Sequence[Backend],
        prompt: Prompt | None,
        record: RequestRecord,
        policy: Policy | None = None,
    ) -> Selected:
        """Notes the decision in the record. `policy`: another one, for this request. Raises
        ValueError if there are no candidates."""
        self._turn += 1
        policy = policy or self._policy
        if prompt is None:
            return self._by_load(candidates, record)
        shape = prompt.prefix(Mode.FEEDBACK)  # the same whatever the order of the candidates
        matches = [self._match(backend, prompt, shape) for backend in candidates]
        record.matched = now = record.matched or self._clock()
        decision = choose(
            policy,
            self._believed(candidates, matches, now),
            RequestShape(
                prompt_tokens=shape.length, affinity=_affinity(policy, prompt, shape, matches)
            ),
            self._turn,
            self._weights,
        )
        record.chosen = record.chosen or self._clock()
        backend = self._pool[decision.backend]
        # A prompt without exact ids (an image, say) is routed by its bytes, whatever the backend.
        record.mode = mode = backend.shown_mode
        if prompt.tokens is None and mode is not Mode.RENDEZVOUS:
            record.mode = Mode.APPROXIMATE
        record.available_tokens = decision.available_cached_tokens
        record.expected_tokens = decision.expected_cached_tokens
        note(decision, record)
        uncached = max(shape.length - decision.expected_cached_tokens, 0)
        if prompt.whole is not None and backend.mode is Mode.FEEDBACK:
            return Selected(backend, None, uncached, prompt.whole)
        return Selected(backend, prompt.prefix(backend.mode), uncached)

    def cached_tokens(self, candidates: Sequence[Backend], prompt: Prompt) -> list[int]:
        """Of the prompt, believed to be reused at each, in the order given."""
        shape = prompt.prefix(Mode.FEEDBACK)
        return [self._match(backend, prompt, shape).cached_tokens for backend in candidates]

    def _by_load(self, candidates: Sequence[Backend], record: RequestRecord) -> Selected:
        now = self._clock()
        decision = choose(
            Policy.LEAST_LOAD,
            self._believed(candidates, [NOTHING] * len(candidates), now),
            RequestShape(prompt_tokens=0, affinity=self._turn),  # ties go to each in turn
            self._turn,
            self._weights,
        )
        note(decision, record)
        return Selected(self._pool[decision.backend], None, 0)

    def _match(self, backend: Backend, prompt: Prompt, shape: Prefix) -> PrefixMatch:
        if not backend.prediction.trusted:
            return NOTHING
        prefix = prompt.prefix(backend.mode)
        match = self._index.match(prefix, backend.name)
        if prefix is shape:
            return match
        # Where bytes stand for tokens, their counts are brought to the length in tokens.
        scale = shape.length / max(prefix.length, 1)
        return PrefixMatch(round(match.cached_tokens * scale), match.evicted_reuse)

    def _believed(
        self, candidates: Sequence[Backend], matches: Sequence[PrefixMatch], now: float
    ) -> list[Candidate]:
        rates = self._pool.routing_rates(candidates, now)
        return [
            Candidate(
                name=backend.name,
                cached_tokens=match.cached_tokens,
                evicted_reuse=match.evicted_reuse,
                queued_tokens=backend.ahead_tokens(now),
                in_flight=backend.in_flight,
                prefill_tokens_per_s=rate,
                waiting=backend.waiting,
            )
            for backend, match, rate in zip(candidates, matches, rates, strict=True)
        ]


def _affinity(policy: Policy, prompt: Prompt, shape: Prefix, matches: Sequence[PrefixMatch]) -> int:
    """Of what the client says belongs together; else of the prompt up to some way into what
    nobody holds: what is held already (a system prompt that all begin with, say) tells prompts
    apart no more, and would send them all to one place. The policy that looks at nothing but
    the hash has it of the beginning."""
    if prompt.affinity is not None:
        return prompt.affinity
    if policy is Policy.RENDEZVOUS:
        return shape.affinity(AFFINITY_TOKENS) ^ prompt.after
    held = max([match.cached_tokens for match in matches])
    return shape.affinity(held + AFFINITY_TOKENS) ^ prompt.after


def note(decision: Decision, record: RequestRecord) -> None:
    record.backend, record.reason = decision.backend, decision.reason
