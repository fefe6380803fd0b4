"""Up to the first byte of an answer, and only then, a request may be tried at one more backend."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from prefold.backends.admission import Admission
from prefold.backends.backend import Backend
from prefold.backends.client import Client
from prefold.backends.errors import (
    BackendError,
    ConnectRefused,
    QueueFull,
    QueueTimeout,
    UpstreamDisconnected,
    UpstreamTimeout,
)
from prefold.backends.pool import BackendPool
from prefold.measurement.record import RequestRecord
from prefold.prefix_index.index import PrefixIndex
from prefold.proxy.arms import without
from prefold.proxy.call import Call
from prefold.proxy.errors import (
    ApiError,
    NoBackendAvailable,
    Overloaded,
    UpstreamFailed,
    UpstreamTimedOut,
)
from prefold.proxy.exchange import BACKPRESSURE, Exchange
from prefold.proxy.retries import MAX_ATTEMPTS, RetryBudget, Suspects
from prefold.proxy.selection import Selector
from prefold.proxy.sending import send

RETRY_ELSEWHERE = BACKPRESSURE | {502}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRules:
    after_first_byte_timeout: bool
    normalise_errors: bool


class Attempts:
    def __init__(
        self,
        *,
        client: Client,
        pool: BackendPool,
        admission: Admission,
        selector: Selector,
        index: PrefixIndex,
        budget: RetryBudget,
        suspects: Suspects,
        rules: AttemptRules,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._pool = pool
        self._admission = admission
        self._selector = selector
        self._index = index
        self._budget = budget
        self._suspects = suspects
        self._rules = rules
        self._clock = clock

    async def open(self, call: Call, record: RequestRecord) -> Exchange:
        """Choose, lease, send, until something of an answer is here. The caller closes the
        exchange. Raises ApiError."""
        self._refuse_if_harmful(call)
        self._budget.earn(self._clock())
        tried: list[str] = []
        busy: Exchange | None = None
        """The answer of a backend that had no room, kept for when no other one has a better one."""
        failure: BackendError | None = None
        while candidates := await self._candidates(call, tried):
            exchange = self._lease(candidates, call, tried, record)
            try:
                await send(self._client, call, exchange, record, self._clock)
            except BackendError as error:
                exchange.close()
                failure = error
                self._note_harm(call, exchange, error)
                if not self._worth_another(call, error, tried):
                    break
            except BaseException:
                exchange.close()
                raise
            else:
                if exchange.status not in RETRY_ELSEWHERE or not self._elsewhere(
                    call, exchange, tried
                ):
                    return exchange
                exchange.close()
                busy = exchange
        if busy is not None:
            record.backend = busy.backend.name
            return busy
        raise _told(failure, call) from failure

    def _refuse_if_harmful(self, call: Call) -> None:
        if isinstance(call.body, bytes) and self._suspects.refused(call.body, self._clock()):
            raise UpstreamFailed(
                "Two backends broke under this very request; it is not tried on a third for now.",
                code="request_breaks_backends",
            )

    async def _candidates(self, call: Call, tried: Sequence[str]) -> list[Backend]:
        """Those of the call's arm, if it has one; where none of them is up, any: an experiment
        refuses nobody."""
        if call.pinned is not None:
            others = {backend.name for backend in self._pool if backend.name != call.pinned}
            return await self._with_room(call, tried, others.union(tried))
        if call.arm is not None:
            excluded = without(call.arm, self._pool, tried)
            if found := await self._with_room(call, tried, excluded):
                return found
        return await self._with_room(call, tried, tried)

    async def _with_room(
        self, call: Call, tried: Sequence[str], excluded: Collection[str]
    ) -> list[Backend]:
        """Waits for room at the first attempt; a second one is made at once or not at all."""
        if tried:
            return self._pool.candidates(call.model, self._clock(), excluded)
        try:
            return await self._admission.candidates(call.model, excluded)
        except QueueFull as error:
            raise Overloaded("Too many requests are waiting for a backend.") from error
        except QueueTimeout as error:
            raise Overloaded("No backend had room in time.") from error

    def _lease(
        self, candidates: Sequence[Backend], call: Call, tried: list[str], record: RequestRecord
    ) -> Exchange:
        policy = None if call.arm is None else call.arm.policy
        selected = self._selector.select(candidates, call.prompt, record, policy)
        record.failed_backends = list(tried)
        tried.append(selected.backend.name)
        record.attempts = len(tried)
        return Exchange(
            selected.backend,
            call.protocol,
            self._clock,
            index=self._index,
            prefix=selected.prefix,
            whole=selected.whole,
            uncached_tokens=selected.uncached_tokens,
            normalise=self._rules.normalise_errors,
        )

    def _worth_another(self, call: Call, error: BackendError, tried: Sequence[str]) -> bool:
        """After a failure, if nothing of the request can still be under way there."""
        if isinstance(error, UpstreamTimeout) and not self._rules.after_first_byte_timeout:
            return False  # it may still be computing: a second prefill would double the load
        return self._may_go_elsewhere(call, tried)

    def _elsewhere(self, call: Call, exchange: Exchange, tried: Sequence[str]) -> bool:
        """Busy, or broken at a gateway of its own, and not told to leave it at that."""
        told = exchange.upstream.headers.get("x-should-retry")
        return told != "false" and self._may_go_elsewhere(call, tried)

    def _may_go_elsewhere(self, call: Call, tried: Sequence[str]) -> bool:
        return (
            call.replayable
            and call.pinned is None
            and len(tried) < MAX_ATTEMPTS
            and bool(self._pool.candidates(call.model, self._clock(), tried))
            and self._budget.spend()
        )

    def _note_harm(self, call: Call, exchange: Exchange, error: BackendError) -> None:
        if isinstance(error, UpstreamDisconnected):
            self.broke(call, exchange.backend)
        if isinstance(error, ConnectRefused):
            self._down_with(exchange.backend)

    def _down_with(self, backend: Backend) -> None:
        """Nothing listens there: not for the other data-parallel ranks of that server either."""
        if backend.rank is None:
            return
        for sibling in self._pool:
            if sibling.url == backend.url:
                sibling.health.down()

    def broke(self, call: Call, backend: Backend) -> None:
        """The backend's connection ended under this request."""
        if isinstance(call.body, bytes):
            self._suspects.harmed(call.body, backend.name, self._clock())

    def answered(self, call: Call) -> None:
        if isinstance(call.body, bytes):
            self._suspects.answered(call.body)


def _told(failure: BackendError | None, call: Call) -> ApiError:
    if failure is None and call.pinned is not None:
        return NoBackendAvailable("The backend that holds this is not available now.")
    if failure is None:
        return NoBackendAvailable("No backend for this model is available now.")
    if isinstance(failure, UpstreamTimeout):
        return UpstreamTimedOut("The backend did not answer in time.")
    return UpstreamFailed("The backend failed before it answered.")
