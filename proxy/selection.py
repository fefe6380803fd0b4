"""From candidates and a prompt to the backend that is to serve it: the index is asked, `routing`
decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prefold.backends.backend import Backend, Mode
from prefold.backends.pool import BackendPool
from prefold.measurement.record import RequestRecord
from prefold.prefix_index.index import PrefixIndex
from prefold.prefix_index.prefix import Prefix
from prefold.proxy.prompt import Prompt
from prefold.proxy.routing import Candidate, Decision, Policy, RequestShape, Weights, choose


@dataclass(frozen=True, slots=True)
class Selected:
    """`prefix` is what the index is to be told; None where the prompt is not looked into."""

    backend: Backend
    prefix: Prefix | None
    uncached_tokens: int


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
        self, candidates: Sequence[Backend], prompt: Prompt | None, record: RequestRecord
    ) -> Selected:
        """Notes the decision in the record. Raises ValueError if there are no candidates."""
        self._turn += 1
        if prompt is None:
            return self._by_load(candidates, record)
        shape = prompt.prefix(Mode.FEEDBACK)  # the same whatever the order of the candidates
        matches = self._matches(candidates, prompt, shape)
        record.matched = record.matched or self._clock()
        decision = choose(
            self._policy,
            [self._candidate(backend, matches[backend.name]) for backend in candidates],
            RequestShape(prompt_tokens=shape.length, affinity=shape.affinity()),
            self._turn,
            self._weights,
        )
        record.chosen = record.chosen or self._clock()
        backend = self._pool[decision.backend]
        # A prompt without exact ids (an image, say) is routed by its bytes, whatever the backend.
        record.mode = Mode.APPROXIMATE if prompt.tokens is None else backend.mode
        record.available_tokens = decision.available_cached_tokens
        record.expected_tokens = decision.expected_cached_tokens
        note(decision, record)
        uncached = shape.length - decision.expected_cached_tokens
        return Selected(backend, prompt.prefix(backend.mode), max(uncached, 0))

    def _by_load(self, candidates: Sequence[Backend], record: RequestRecord) -> Selected:
        decision = choose(
            Policy.LEAST_LOAD,
            [self._candidate(backend, (0, 0)) for backend in candidates],
            RequestShape(prompt_tokens=0, affinity=self._turn),  # ties go to each in turn
            self._turn,
            self._weights,
        )
        note(decision, record)
        return Selected(self._pool[decision.backend], None, 0)

    def _matches(
        self, candidates: Sequence[Backend], prompt: Prompt, shape: Prefix
    ) -> dict[str, tuple[int, int]]:
        """Cached and evicted tokens by name."""
        matches = {}
        for mode in {backend.mode for backend in candidates}:
            names = [backend.name for backend in candidates if backend.mode is mode]
            prefix = prompt.prefix(mode)
            # Where bytes stand for tokens, their counts are brought to the length in tokens.
            scale = shape.length / max(prefix.length, 1)
            for name, match in self._index.match(prefix, names).items():
                matches[name] = (round(match.cached_tokens * scale), match.evicted_tokens)
        return matches

    def _candidate(self, backend: Backend, match: tuple[int, int]) -> Candidate:
        return Candidate(
            name=backend.name,
            cached_tokens=match[0],
            evicted_tokens=match[1],
            queued_tokens=backend.queued_tokens,
            in_flight=backend.in_flight,
            prefill_tokens_per_s=self._pool.routing_rate(backend, self._clock()),
            waiting=backend.waiting,
        )


def note(decision: Decision, record: RequestRecord) -> None:
    record.backend, record.reason = decision.backend, decision.reason
