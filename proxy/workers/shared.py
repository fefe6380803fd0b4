"""What a worker has in common with the others, in place of the parts that are one process's own:
loads and limits in the shared table, the rest told by messages."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping

from prefold.backends.backend import Load
from prefold.backends.rate import PrefillRate
from prefold.measurement.books import Books
from prefold.measurement.record import RequestRecord
from prefold.proxy.errors import RateLimited
from prefold.proxy.pins import Pins
from prefold.proxy.rate_limit import Allowance, RateLimiter
from prefold.proxy.retries import Suspects
from prefold.proxy.workers.table import Cells, Table

MAX_BACKENDS = 1024
NUMBERS_OF_BACKEND = 3
NUMBERS_OF_KEY = 2
NS = 1e9


def rows(workers: int, *, replicas: bool) -> int:
    """Of the table: one for each worker, and one for what other replicas have, behind them."""
    return workers + replicas


def numbers(keys: int) -> int:
    """So many does the table hold."""
    return MAX_BACKENDS * NUMBERS_OF_BACKEND + keys * NUMBERS_OF_KEY


class SharedLoad(Load):
    """All workers' requests count as load the moment they are leased.

    Two workers that choose at the same moment may both take the last place: a backend may have as
    many requests more than its limit as there are other workers.
    """

    def __init__(
        self, table: Table, slot: int, row: int | None, replicas: int | None = None
    ) -> None:
        """`replicas`: the row that holds what other replicas have there, if there may be some."""
        super().__init__()
        self._replicas = replicas
        first = slot * NUMBERS_OF_BACKEND
        self._requests = table.cells(first, row)
        self._tokens = table.cells(first + 1, row)
        self._since = table.cells(first + 2, row)

    @property
    def in_flight(self) -> int:
        return self._requests.total

    @property
    def queued_tokens(self) -> int:
        return self._tokens.total

    @property
    def here(self) -> int:
        row, requests = self._replicas, self._requests
        return requests.total if row is None else requests.total - requests.of(row)

    @property
    def queued_here(self) -> int:
        row, tokens = self._replicas, self._tokens
        return tokens.total if row is None else tokens.total - tokens.of(row)

    def elsewhere(self, requests: int, queued_tokens: int) -> None:
        """What other replicas have there from now on; said by the parent, whose row it is."""
        self._requests.set(requests)
        self._tokens.set(queued_tokens)

    def add(self, requests: int, queued_tokens: int) -> None:
        if requests:
            self._requests.add(requests)
        if queued_tokens:
            self._tokens.add(queued_tokens)

    @property
    def is_idle(self) -> bool:
        return not (self._requests.total or self._tokens.total or self._since.total)

    def wait(self, since: float | None) -> None:
        self._since.set(0 if since is None else round(since * NS))

    def waits_elsewhere(self, after: float) -> float:
        earliest = after * NS
        waiting = [since for since in self._since.of_others() if since and since >= earliest]
        return min(waiting) / NS if waiting else math.inf


class SharedRate(PrefillRate):
    """What one worker observes, all learn."""

    def __init__(self, tell: Callable[[int, float], None]) -> None:
        super().__init__()
        self._tell = tell

    def observe(self, uncached_tokens: int, seconds: float) -> None:
        super().observe(uncached_tokens, seconds)
        if uncached_tokens >= self.MIN_TOKENS:
            self._tell(uncached_tokens, seconds)

    def take_in(self, uncached_tokens: int, seconds: float) -> None:
        super().observe(uncached_tokens, seconds)


class SharedPins(Pins):
    def __init__(self, tell: Callable[[str, str, str], None]) -> None:
        super().__init__()
        self._tell = tell

    def learn(self, tenant: str, response_id: str, backend: str) -> None:
        known = self.find(tenant, response_id)
        super().learn(tenant, response_id, backend)
        if known != backend:
            self._tell(tenant, response_id, backend)

    def take_in(self, tenant: str, response_id: str, backend: str) -> None:
        super().learn(tenant, response_id, backend)


class SharedSuspects(Suspects):
    """A request that broke a backend under one worker is suspect to all. Inside, its digest stands
    for its body."""

    def __init__(
        self, digest: Callable[[bytes], bytes], tell: Callable[[bytes, str], None]
    ) -> None:
        """`tell` is called with a digest and the backend that broke, "" if it was answered."""
        super().__init__(lambda key: key)
        self._key = digest
        self._tell = tell

    def refused(self, body: bytes, now: float) -> bool:
        return bool(self._harmed) and super().refused(self._key(body), now)

    def harmed(self, body: bytes, backend: str, now: float) -> None:
        key = self._key(body)
        super().harmed(key, backend, now)
        self._tell(key, backend)

    def answered(self, body: bytes) -> None:
        if self._harmed and (key := self._key(body)) in self._harmed:
            super().answered(key)
            self._tell(key, "")

    def take_in(self, key: bytes, backend: str, now: float) -> None:
        if backend:
            super().harmed(key, backend, now)
        else:
            super().answered(key)


class SharedLimiter(RateLimiter):
    """Limits that hold for all workers together. As with places, each other worker may let one
    request too many in at the same moment; a rate is as exact as `learn` is called often."""

    def __init__(self, table: Table, keys: Mapping[Hashable, int], row: int) -> None:
        """`keys`: their numbers, from 0."""
        super().__init__()
        first = MAX_BACKENDS * NUMBERS_OF_BACKEND
        self._parallel: dict[Hashable, Cells] = {}
        self._spent: dict[Hashable, Cells] = {}
        self._seen: dict[Hashable, int] = {}
        """Requests of other workers that were taken off the key's allowance here."""
        for key, number in keys.items():
            at = first + number * NUMBERS_OF_KEY
            self._parallel[key] = table.cells(at, row)
            self._spent[key] = table.cells(at + 1, row)
            self._seen[key] = self._spent[key].others

    def admit(
        self, key: Hashable, *, requests_per_minute: float, parallel: int, now: float
    ) -> None:
        self._learn(key, requests_per_minute, now)
        if parallel and self._parallel[key].total >= parallel:
            raise RateLimited("Too many requests of this API key at once.", retry_after_s=1)
        super().admit(key, requests_per_minute=requests_per_minute, parallel=0, now=now)
        self._parallel[key].add(1)
        self._spent[key].add(1)

    def allowance(
        self, key: Hashable, *, requests_per_minute: float, now: float
    ) -> Allowance | None:
        self._learn(key, requests_per_minute, now)
        return super().allowance(key, requests_per_minute=requests_per_minute, now=now)

    def release(self, key: Hashable) -> None:
        super().release(key)
        self._parallel[key].add(-1)

    def learn(self, rates: Iterable[tuple[Hashable, float]], now: float) -> None:
        """Keys with their requests per minute. What others spent is taken off here: late, it would
        be off an allowance that has been refilled meanwhile."""
        for key, rate in rates:
            self._learn(key, rate, now)

    def _learn(self, key: Hashable, requests_per_minute: float, now: float) -> None:
        spent = self._spent[key].others
        new = spent - self._seen[key]
        if new:
            # Less than before: a worker has died and its cells were cleared.
            self._seen[key] = spent
            use = self._use(key, requests_per_minute, now)
            use.tokens = max(use.tokens - max(new, 0), 0.0)


class SentBooks(Books):
    """Kept by the parent."""

    def __init__(self, send: Callable[[RequestRecord], None]) -> None:
        super().__init__()
        self._send = send

    def add(self, record: RequestRecord) -> None:
        self._send(record)
