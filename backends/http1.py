"""One HTTP/1.1 connection to an LLM server, carrying one exchange at a time.

llhttp (httptools) reads. What is read goes straight to a sink, with no task between: a token costs
what its bytes cost. Knows nothing of events or of models.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol, cast

import httptools
from multidict import CIMultiDict, CIMultiDictProxy

from prefold.backends.decoding import Decoder
from prefold.backends.errors import BackendError, UpstreamDisconnected, UpstreamTimeout

MAX_HEAD_BYTES = 256 * 1024
MAX_FIELD_BYTES = 64 * 1024
HIGH_WATER = 256 * 1024
"""Bytes of a body that may wait for whoever reads it."""
TICK_S = 4.0
"""A connection's timer rings at least so often. No wait is shorter, unless one is configured so."""
NO_HEADERS = CIMultiDictProxy[str](CIMultiDict())
MAX_INFLATED = 16 * 1024 * 1024
"""Bytes that one read may become where the body is compressed: nothing could pause in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds. `first_byte_s` is the wait for the response head, and again for the first byte of
    its body (some engines send the head before the prefill), `idle_s` that between later reads."""

    connect_s: float = 5.0
    first_byte_s: float = 600.0
    idle_s: float = 120.0


class Sink(Protocol):
    """Where a body goes. Nothing comes after `end` or `failed`."""

    def data(self, piece: bytes) -> None: ...
    def end(self) -> None: ...
    def failed(self, error: BackendError) -> None: ...


class Connection(asyncio.Protocol):
    """`on_idle` is told when the exchange is over and another may follow, `on_unused` when none
    followed by the time that was set, `on_lost` at the end."""

    def __init__(
        self,
        *,
        on_idle: Callable[[Connection], None],
        on_unused: Callable[[Connection], None],
        on_lost: Callable[[Connection], None],
    ) -> None:
        self._on_idle = on_idle
        self._on_unused = on_unused
        self._on_lost = on_lost
        self.loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._exchange: Upstream | None = None
        self._writable: asyncio.Future[None] | None = None
        self._pieces: list[bytes] = []
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0
        self.used = False
        """It has carried an exchange before."""
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        if self._timer is not None:
            self._timer.cancel()
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.connection_ended(error)
        self._on_lost(self)

    def pause_writing(self) -> None:
        self._writable = self.loop.create_future()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    async def drained(self) -> None:
        """Until the server has taken most of what was written, or is gone."""
        if self._writable is not None:
            await self._writable

    def expect_by(self, due: float) -> None:
        """Something is to have happened by then, in the loop's time. There is one timer for each
        connection, which is set again when it rings too early: one for each wait would cost as much
        as reading an answer's head."""
        self._due = due
        if self._timer is None or self._rings_at > due:
            self._set_timer(self.loop.time())

    def _set_timer(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = min(self._due, now + TICK_S)
        self._timer = self.loop.call_at(self._rings_at, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self.loop.time()
        if now < self._due:
            self._set_timer(now)
        elif self._exchange is not None:
            self._exchange.overdue(now)
        elif not self.transport.is_closing():
            self._on_unused(self)

    def begin(self, exchange: Upstream) -> None:
        """The connection is idle, and the exchange's request is written next."""
        self._exchange = exchange
        self._headers: list[tuple[str, str]] = []
        self._head_bytes = 0

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            self.transport.abort()  # nobody asked for this: it must not become the next answer
            return
        exchange.bytes_came()
        if exchange.in_head:
            self._head_bytes += len(data)
        fault = ""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            fault = "an upgrade that was not asked for"
        except httptools.HttpParserError as error:
            own = error.__context__
            fault = str(own) if isinstance(own, UpstreamDisconnected) else "no HTTP"
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            exchange.body_came(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if fault:
            exchange.reusable = False
        if exchange.ended:
            self._over(exchange)
        elif fault:
            self._exchange = None
            exchange.broke(UpstreamDisconnected(fault))
            self.transport.abort()

    # the parser's side

    def on_header(self, name: bytes, value: bytes) -> None:
        exchange = self._exchange
        if exchange is None or not exchange.in_head:
            return  # trailers are dropped
        if len(name) + len(value) > MAX_FIELD_BYTES or self._head_bytes > MAX_HEAD_BYTES:
            raise UpstreamDisconnected("a head that is too long")
        self._headers.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_message_begin(self) -> None:
        if self._exchange is not None and self._exchange.ended:
            raise UpstreamDisconnected("an answer that nobody asked for")

    def on_headers_complete(self) -> None:
        exchange, status = self._exchange, self._parser.get_status_code()
        headers, self._headers = self._headers, []
        if exchange is None or (100 <= status < 200 and status != 101):
            return
        exchange.head_came(status, CIMultiDict(headers))

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        exchange = self._exchange
        if exchange is not None and not exchange.in_head:
            exchange.ended = True
            exchange.reusable = self._parser.should_keep_alive()

    def _over(self, exchange: Upstream) -> None:
        """The answer is whole."""
        self._exchange = None
        exchange.whole()
        if exchange.reusable and exchange.sent and not self.transport.is_closing():
            self.used = True
            self._on_idle(self)
        else:
            self.transport.close()

    def abandon(self, exchange: Upstream) -> None:
        """Nobody waits for the rest of the answer."""
        if self._exchange is exchange:
            self._exchange = None
            self.transport.abort()


class Upstream:
    """One exchange. `answered` first; then its body, by `to`, `chunks` or `read`; `close` in every
    case, which aborts what has not come."""

    def __init__(self, connection: Connection, limits: Limits, *, head_only: bool) -> None:
        self._connection = connection
        self._limits = limits
        self._head_only = head_only
        self._loop = connection.loop
        self._head: asyncio.Future[None] = self._loop.create_future()
        self._sink: Sink | None = None
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._decoder: Decoder | None = None
        self._until_close = False
        self._error: BackendError | None = None
        self._finished = False
        self._paused = False
        self._discarding = False
        self._patience = limits.first_byte_s
        self._last = self._loop.time()
        self.in_head = True
        self.silent = True
        """Nothing at all has come back."""
        self.sent = False
        """The request was written to its end."""
        self.ended = False
        self.reusable = False
        self.status = 0
        self.headers = NO_HEADERS
        """Those of the body that is given: decoded, it has neither coding nor length."""
        connection.begin(self)
        connection.expect_by(self._last + self._patience)

    # from the connection

    def bytes_came(self) -> None:
        self.silent = False
        self._last = self._loop.time()

    def head_came(self, status: int, headers: CIMultiDict[str]) -> None:
        """Raises UpstreamDisconnected for an answer that no request of ours allows."""
        if status < 200:
            raise UpstreamDisconnected("an upgrade that was not asked for")
        coding = headers.get("Transfer-Encoding", "chunked").strip().lower()
        if coding != "chunked":
            raise UpstreamDisconnected("a coding that was not asked for")
        self.status = status
        self._until_close = not ("Content-Length" in headers or "Transfer-Encoding" in headers)
        self._decoder = _decoder(headers)
        if self._decoder is not None:
            headers = CIMultiDict(headers)
            headers.popall("Content-Encoding", None)
            headers.popall("Content-Length", None)
        self.headers = CIMultiDictProxy(headers)
        self.in_head = False
        if self._head_only:
            self.ended = True
        if not self._head.done():
            self._head.set_result(None)

    def body_came(self, data: bytes) -> None:
        if self._discarding:
            self._connection.abandon(self)  # it was said to be over
            return
        if self._patience != self._limits.idle_s:
            self._patience = self._limits.idle_s
            self._connection.expect_by(self._last + self._patience)
        if self._decoder is None:
            self._give(data)
            return
        inflated = 0
        try:
            for decoded in self._decoder.steps(data):
                inflated += len(decoded)
                if inflated > MAX_INFLATED:
                    raise UpstreamDisconnected("a compressed body that inflates too much")
                self._give(decoded)
        except UpstreamDisconnected as error:
            self._connection.abandon(self)
            self.broke(error)

    def whole(self) -> None:
        """The parser saw its end."""
        if self._decoder is not None and self._error is None:
            try:
                self._decoder.finish()
            except UpstreamDisconnected as error:
                self.broke(error)
        if self._error is None:
            self._finish()

    def connection_ended(self, error: Exception | None) -> None:
        if not self.in_head and self._until_close and error is None:
            self.ended = True
            self.whole()
            return
        name = type(error).__name__ if error is not None else "EOF"
        self.broke(UpstreamDisconnected(f"the connection ended before the answer ({name})"))

    def broke(self, error: BackendError) -> None:
        """Its first fault is the one that is told."""
        if self._error is not None or self._finished:
            return
        self._error = error
        if not self._head.done():
            self._head.set_exception(error)
        if self._sink is not None:
            self._sink.failed(error)
        self._wake()

    def _finish(self) -> None:
        self._finished = True
        if self._sink is not None:
            self._sink.end()
        self._wake()

    def _give(self, data: bytes) -> None:
        if self._sink is not None:
            self._sink.data(data)
            return
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes > HIGH_WATER:
            self.pause()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def overdue(self, now: float) -> None:
        """Unless something came meanwhile, or nobody wanted it to."""
        if self._paused:
            self._last = now
        if now < self._last + self._patience:
            self._connection.expect_by(self._last + self._patience)
            return
        self._connection.abandon(self)
        self.broke(UpstreamTimeout("no bytes from the backend in time"))

    # from its user

    async def answered(self) -> None:
        """Until the head is here; raises BackendError."""
        await self._head

    def to(self, sink: Sink) -> None:
        """What came, and all that comes, goes to `sink`, in the callback that reads it."""
        self._sink = sink
        while self._waiting:
            sink.data(self._waiting.popleft())
        self._waiting_bytes = 0
        if self._error is not None:
            sink.failed(self._error)
        elif self._finished:
            sink.end()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Body bytes as they arrive; raises BackendError when the body is cut or goes silent."""
        while True:
            while self._waiting:
                data = self._waiting.popleft()
                self._waiting_bytes -= len(data)
                if self._waiting_bytes <= HIGH_WATER // 2:
                    self.resume()
                yield data
            if self._error is not None:
                raise self._error
            if self._finished:
                return
            self._waiter = self._loop.create_future()
            await self._waiter

    async def read(self, max_bytes: int) -> bytes:
        """The whole body; raises UpstreamDisconnected if it is larger."""
        pieces, size = [], 0
        async for piece in self.chunks():
            pieces.append(piece)
            size += len(piece)
            if size > max_bytes:
                raise UpstreamDisconnected(f"a body of more than {max_bytes} bytes")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def pause(self) -> None:
        if not self._paused and not self._connection.transport.is_closing():
            self._paused = True
            self._connection.transport.pause_reading()

    def resume(self) -> None:
        if self._paused and not self._connection.transport.is_closing():
            self._paused = False
            self._connection.transport.resume_reading()

    def close(self, *, after_end_s: float = 0.0) -> None:
        """Aborts what has not come. `after_end_s`: the answer is whole, as its own last event says;
        for so long the connection may yet end it in form, and be used again."""
        if not self._head.done():
            self._head.cancel()
        elif not self._head.cancelled():
            self._head.exception()  # asyncio would log one that nobody looked at
        self._sink = None
        if self.ended or self._error is not None:
            self._waiting.clear()
            self.resume()
        elif after_end_s and not self._waiting:
            self._discarding = True
            self.resume()
            self._loop.call_later(after_end_s, self._connection.abandon, self)
        else:
            self._connection.abandon(self)


def _decoder(headers: CIMultiDict[str]) -> Decoder | None:
    coding = ",".join(headers.getall("Content-Encoding", ())).strip().lower()
    return None if coding in ("", "identity") else Decoder(coding)
