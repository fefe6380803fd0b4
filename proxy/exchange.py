"""One attempt at one backend: the lease, the index's placement and the upstream response together,
so that whatever ends the attempt ends all three, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

from prefold.backends.backend import Backend, Lease
from prefold.backends.client import Client
from prefold.backends.engine import PromptReport
from prefold.backends.errors import (
    BackendError,
    ConnectRefused,
    LocalFault,
    UpstreamDisconnected,
)
from prefold.backends.health import Outcome
from prefold.backends.http1 import Upstream
from prefold.prefix_index.index import RIGHT, Correction, Placement, PrefixIndex
from prefold.prefix_index.prefix import Prefix
from prefold.proxy.event_stream import EventStream
from prefold.proxy.meter import Ending, Meter, status_of_error
from prefold.proxy.protocol import Protocol, Whole, normalised

BACKPRESSURE = frozenset((429, 503))
MAX_WHOLE_BODY = 64 * 1024 * 1024
MAX_ERROR_BODY = 1024 * 1024
NOTHING_SAID = Whole()
AFTER_DONE_S = 1.0
"""How long the end of a body may follow [DONE] for its connection to be used again."""


class Exchange:
    """Mutable. `send` once, then `first` and `rest`; `close` in every case (it is idempotent)."""

    def __init__(
        self,
        backend: Backend,
        protocol: Protocol,
        clock: Callable[[], float],
        *,
        index: PrefixIndex | None = None,
        prefix: Prefix | None = None,
        whole: asyncio.Future[Prefix] | None = None,
        uncached_tokens: int = 0,
        normalise: bool = True,
    ) -> None:
        """Counts as load from here on: a burst must see itself. The index is told of the prefix, of
        `whole` as soon as it is known; without either, not at all. `normalise`: an error in a 200,
        or in a shape of its own, is told as an error is."""
        self.backend = backend
        self.protocol = protocol
        self.meter: Meter | None = None
        """Of an event stream that is understood."""
        self.first = b""
        """A whole answer, or the first bytes of one that goes on with `rest`."""
        self.rest: AsyncIterator[bytes] | None = None
        self.events: EventStream | None = None
        """An answer in events that are understood: there is a meter then."""
        self.whole = NOTHING_SAID
        self.first_in_line = backend.queued_tokens == 0
        """No uncached tokens of ours were queued ahead, so its TTFT is its own prefill's time."""
        self.status = 0
        """What the client is to be told."""
        self.headers_at: float | None = None
        self.rewritten = False
        """`first` is an error in our words."""
        self._normalise = normalise
        self._upstream: Upstream | None = None
        self._outcome = Outcome.NEUTRAL
        self._computed = False
        self._clock = clock
        self._index = index
        now = clock()
        self._closed = False
        self._placement: Placement | None = None
        self.placed_late: Placement | None = None
        """What `whole` became in the index: only then is known what was expected of it."""
        if index is not None and prefix is not None:
            self._placement = index.begin(backend.name, prefix, now)
        elif whole is not None:
            whole.add_done_callback(self._place)
        self._lease = Lease(backend, uncached_tokens, now)

    def _place(self, whole: asyncio.Future[Prefix]) -> None:
        if whole.cancelled() or whole.exception() is not None or self._index is None:
            return
        self._placement = self._index.begin(self.backend.name, whole.result(), self._clock())
        self.placed_late = self._placement
        if self._closed:
            self._finish_placement()

    @property
    def upstream(self) -> Upstream:
        """Only after `send` returned."""
        if self._upstream is None:
            raise RuntimeError("no response yet")
        return self._upstream

    async def send(
        self,
        client: Client,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | AsyncIterator[bytes],
        *,
        strip_usage: bool = False,
    ) -> None:
        """Returns when there is something of an answer: the first whole event of a stream, the
        first bytes of a body that is not understood, or a whole body. Raises BackendError."""
        try:
            url = self.backend.url + target
            self._upstream = await client.send(
                method, url, headers=headers, body=body, ssl=self.backend.ssl
            )
            self.headers_at = self._clock()
            self.status = self._upstream.status
            self._outcome = outcome_of_status(self.status)
            if 300 <= self._upstream.status < 400:
                # Clients would follow it, and carry the prompt elsewhere.
                raise UpstreamDisconnected("a redirect")
            await self._begin(self._upstream, strip_usage)
        except BackendError as error:
            self.failed(error)
            raise

    async def _begin(self, upstream: Upstream, strip_usage: bool) -> None:
        ok = 200 <= upstream.status < 300
        if ok and is_event_stream(upstream) and self.protocol.meter is not None:
            self.meter = self.protocol.meter(strip_usage)
            self.events = EventStream(
                upstream, self.meter, clock=self._clock, on_first_token=self._prefilled
            )
            await self.events.first()
        elif ok and self.protocol.meter is None:
            self.rest = upstream.chunks()
            self.first = await anext(self.rest, b"")
        else:
            self.first = await upstream.read(MAX_WHOLE_BODY if ok else MAX_ERROR_BODY)
            if ok and not self.first and upstream.status == 200:
                raise UpstreamDisconnected("an empty answer")
            self._judge_whole(ok)

    def _judge_whole(self, ok: bool) -> None:
        """An error is one under whatever status it comes: clients take a 200 for an answer."""
        self.whole = self.protocol.read(self.first)
        error = self.whole.error
        if ok and error is None:
            self._prefilled()
            return
        if ok:
            named = status_of_error(error)
            self._outcome = outcome_of_status(named)
            if not self._normalise:
                return
            self.status = 502 if named == 500 else named
        if self._normalise:
            told = normalised(self.protocol, self.status, self.first)
            if told is not None:
                self.first, self.rewritten = told, True

    def failed(self, error: BackendError) -> None:
        self._outcome = outcome_of_error(self.backend, error)

    def _prefilled(self) -> None:
        self._computed = True
        self._lease.prefilled(self._clock())

    def report(self) -> tuple[bool, PromptReport]:
        """Whether the engine answered the request (an error is no answer, whatever its status),
        and what it told of the prompt; call when the answer has been read to its end."""
        meter = self.meter
        if meter is not None:
            answered = meter.ending is Ending.COMPLETE
            usage, timings = meter.usage, meter.timings
            if meter.error_status is not None:
                self._outcome = outcome_of_status(meter.error_status)
        else:
            answered = self.upstream.status < 400 and not self.whole.failed
            usage, timings = self.whole.usage, self.whole.timings
        if answered:
            self._prefilled()
        engine = self.backend.engine
        return answered, PromptReport() if engine is None else engine.report(usage, timings)

    @property
    def placement(self) -> Placement | None:
        """What the index expected of it; None where it was not asked, or is not told yet."""
        return self._placement

    def correct(self, cached_tokens: int, generated_tokens: int) -> Correction:
        """The index learns what the engine reported. Before `close`."""
        if self._placement is None or self._index is None:
            return RIGHT
        return self._index.correct(
            self.backend.name,
            self._placement,
            cached_tokens,
            self._clock(),
            generated_tokens=generated_tokens,
        )

    def close(self) -> None:
        if self._upstream is not None:
            done = self.meter is not None and self.meter.done
            self._upstream.close(after_end_s=AFTER_DONE_S if done else 0.0)
        self._closed = True
        self._lease.release(self._outcome, self._clock())
        self._finish_placement()

    def _finish_placement(self) -> None:
        if self._placement is not None and self._index is not None:
            placement, self._placement = self._placement, None
            now = self._clock()
            self._index.finish(self.backend.name, placement, now, computed=self._computed)


def outcome_of_status(status: int) -> Outcome:
    """Client errors, and 501 (not built in), say that the backend works; 429 and 503 that it is
    busy, not ill."""
    if status in BACKPRESSURE:
        return Outcome.NEUTRAL
    return Outcome.SUCCESS if status < 500 or status == 501 else Outcome.FAILURE


def outcome_of_error(backend: Backend, error: BackendError) -> Outcome:
    """What a failed exchange says of the backend, which is down at once if nothing listens."""
    if isinstance(error, ConnectRefused):
        backend.health.down()
    return Outcome.NEUTRAL if isinstance(error, LocalFault) else Outcome.FAILURE


def is_event_stream(upstream: Upstream) -> bool:
    kind = upstream.headers.get("Content-Type", "")
    return kind.lower().startswith("text/event-stream")
