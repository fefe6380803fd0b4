"""One attempt at one backend: the lease, the index's placement and the upstream response together,
so that whatever ends the attempt ends all three, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from prefold.backends.backend import Backend, Lease
from prefold.backends.client import Client, Upstream
from prefold.backends.engine import PromptReport, Timings, Usage
from prefold.backends.errors import (
    BackendError,
    ConnectRefused,
    LocalFault,
    UpstreamDisconnected,
)
from prefold.backends.health import Outcome
from prefold.prefix_index.index import PrefixIndex
from prefold.prefix_index.prefix import Prefix
from prefold.proxy.relay import EventStream
from prefold.proxy.stream_meter import Ending, StreamMeter

BACKPRESSURE = frozenset((429, 503))
MAX_WHOLE_BODY = 64 * 1024 * 1024


class WholeBody(msgspec.Struct):
    """What is read of a response that is not streamed."""

    usage: Usage | None = None
    timings: Timings | None = None
    error: Any = None


class Exchange:
    """Mutable. `send` once, then `first` and `stream`; `close` in every case (it is idempotent)."""

    def __init__(
        self,
        backend: Backend,
        index: PrefixIndex,
        prefix: Prefix,
        uncached_tokens: int,
        clock: Callable[[], float],
    ) -> None:
        """Counts as load from here on: a burst must see itself."""
        self.backend = backend
        self.meter = StreamMeter()
        self.stream: EventStream | None = None
        """The rest of an event stream; None if the answer is a whole body, which is `first`."""
        self.first = b""
        self.first_in_line = backend.queued_tokens == 0
        """No uncached tokens of ours were queued ahead, so its TTFT is its own prefill's time."""
        self._upstream: Upstream | None = None
        self._outcome = Outcome.NEUTRAL
        self._computed = False
        self._index = index
        self._clock = clock
        now = clock()
        self._placement = index.begin(backend.name, prefix, now)
        self._lease = Lease(backend, uncached_tokens, now)

    @property
    def upstream(self) -> Upstream:
        """Only after `send` returned."""
        if self._upstream is None:
            raise RuntimeError("no response yet")
        return self._upstream

    async def send(
        self,
        client: Client,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        strip_usage: bool,
    ) -> None:
        """Returns when there is something of an answer: the first whole event of a stream, or a
        whole body. Raises BackendError."""
        try:
            self._upstream = await client.send(
                "POST", self.backend.url + path, headers=headers, body=body
            )
            self._outcome = outcome_of_status(self._upstream.status)
            if is_event_stream(self._upstream):
                self.stream = EventStream(
                    self._upstream.chunks(),
                    self.meter,
                    strip_usage=strip_usage,
                    clock=self._clock,
                    on_first_token=self._prefilled,
                )
                self.first = await self.stream.first()
            else:
                self.first = await read_whole(self._upstream)
                if self._upstream.status == 200:
                    if not self.first:
                        raise UpstreamDisconnected("an empty answer")
                    self._prefilled()
        except BackendError as error:
            self.failed(error)
            raise

    def failed(self, error: BackendError) -> None:
        self._outcome = outcome_of_error(self.backend, error)

    def _prefilled(self) -> None:
        self._computed = True
        self._lease.prefilled()

    def report(self) -> tuple[bool, PromptReport]:
        """Whether the engine answered the request (an error is no answer, whatever its status),
        and what it told of the prompt; call when the answer has been read to its end."""
        if self.stream is None:
            whole = _read(self.first)
            answered = self.upstream.status < 400 and whole.error is None
            usage, timings = whole.usage, whole.timings
        else:
            answered = self.meter.ending is Ending.COMPLETE
            usage, timings = self.meter.usage, self.meter.timings
        if answered:
            self._prefilled()
        engine = self.backend.engine
        return answered, PromptReport() if engine is None else engine.report(usage, timings)

    def close(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
        now = self._clock()
        self._lease.release(self._outcome, now)
        if self._placement is not None:
            placement, self._placement = self._placement, None
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
    return upstream.status == 200 and kind.lower().startswith("text/event-stream")


async def read_whole(upstream: Upstream) -> bytes:
    """Raises BackendError if the body is cut or larger than any answer of a model is."""
    pieces, size = [], 0
    async for chunk in upstream.chunks():
        pieces.append(chunk)
        size += len(chunk)
        if size > MAX_WHOLE_BODY:
            raise UpstreamDisconnected(f"a body of more than {MAX_WHOLE_BODY} bytes")
    return b"".join(pieces)


def _read(body: bytes) -> WholeBody:
    try:
        return msgspec.json.decode(body, type=WholeBody)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return WholeBody()
