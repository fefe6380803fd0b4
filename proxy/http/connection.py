"""One client's connection: bytes to requests, one after the other, each with a task of its own.

llhttp (httptools) reads; what it refuses is refused. Requests that are sent ahead wait, a few.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

import httptools
from multidict import CIMultiDict

from prefold.proxy.errors import ApiError, BadRequest, ExpectationFailed, HeaderTooLong
from prefold.proxy.http.answer import Answer, Clock
from prefold.proxy.http.body import Body
from prefold.proxy.http.request import Request

log = logging.getLogger(__name__)

MAX_SENT_AHEAD = 16
LINGER_S = 2.0
"""For a client to stop sending a body that nobody reads: closing at once would reset the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionRules:
    """`read_s` is the most that a client may stay silent within a request, `idle_s` between two."""

    max_head_bytes: int
    read_s: float
    idle_s: float


class Live:
    """The connections of one port, and how many of them have a request being answered."""

    def __init__(self) -> None:
        self.connections: set[Connection] = set()
        self._answering = 0
        self.idle = asyncio.Event()
        self.idle.set()

    def began(self) -> None:
        self._answering += 1
        self.idle.clear()

    def ended(self) -> None:
        self._answering -= 1
        if not self._answering:
            self.idle.set()


class Connection(asyncio.Protocol):
    """`serve` answers a request in full; `tell` makes the answer for what could not be read."""

    def __init__(
        self,
        *,
        serve: Callable[[Request], Awaitable[None]],
        tell: Callable[[Request, ApiError], None],
        rules: ConnectionRules,
        clock: Clock,
        live: Live,
    ) -> None:
        self._serve = serve
        self._tell = tell
        self._rules = rules
        self._clock = clock
        self._live = live
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[Request] = deque()
        self._request: Request | None = None
        """Being answered."""
        self._task: asyncio.Task[None] | None = None
        self._body: Body | None = None
        """Being received: that of the last request whose head is here."""
        self._closing = False
        """No further request is waited for."""
        self._deaf = False
        """What comes is dropped: it cannot be read, or nobody reads it."""
        self._paused = False
        self._timer: asyncio.TimerHandle | None = None
        self._last_read = self._loop.time()

    # the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._live.connections.add(self)
        self._begin_head()
        self._watch()

    def connection_lost(self, error: Exception | None) -> None:
        self._live.connections.discard(self)
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._request is not None:
            self._request.answer.resume()  # whoever waits for room finds that nobody is there
        if self._task is not None:
            self._task.cancel()  # upstreams would run on for a client that left

    def pause_writing(self) -> None:
        if self._request is not None:
            self._request.answer.pause()

    def resume_writing(self) -> None:
        if self._request is not None:
            self._request.answer.resume()

    def data_received(self, data: bytes) -> None:
        self._last_read = self._loop.time()
        if self._deaf:
            return
        if self._body is None or self._body.complete:
            self._head_bytes += len(data)
            if self._head_bytes > self._rules.max_head_bytes and b"\r\n\r\n" not in data:
                self._refuse(HeaderTooLong("The request's head is too long."))
                return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # No protocol is offered here, so the request is one like any other (RFC 9110 7.8); the
            # parser took its body for the other protocol's, and has to be told again without.
            if self._parser.get_method() == b"CONNECT":
                self._refuse(BadRequest("This is no proxy of connections."))
                return
            head = self._without_upgrade()
            self._parser = httptools.HttpRequestParser(self)
            self.data_received(head + data[upgrade.args[0] :])
        except ApiError as error:
            self._refuse(error)
        except httptools.HttpParserError as error:
            # Raised by a callback of ours, or by the parser.
            cause = error.__context__ or error.__cause__
            if isinstance(cause, ApiError):
                self._refuse(cause)
            elif self._request is not None or self._waiting:
                self._last()  # what came before is answered
                if self._body is not None and not self._body.complete:
                    self._body.fail()
            else:
                self._refuse(BadRequest("The request could not be read."))

    # the parser's side

    def _begin_head(self) -> None:
        self._head_bytes = 0
        self._url = b""
        self._headers: list[tuple[str, str]] = []
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # trailers are dropped
            self._headers.append((name.decode("latin-1"), value.decode("latin-1")))
            if len(name) + len(value) > self._rules.max_head_bytes:
                raise HeaderTooLong("A header of the request is too long.")

    def on_headers_complete(self) -> None:
        self._in_head = False
        if not self._parser.should_upgrade():
            self._take(self._request_of_head())

    def on_body(self, piece: bytes) -> None:
        if self._body is not None:
            self._body.feed(piece)

    def on_message_complete(self) -> None:
        if self._parser.should_upgrade():
            return
        if self._body is not None:
            self._body.end()
        self._begin_head()

    def _without_upgrade(self) -> bytes:
        """The head that was read, as one of a request like any other."""
        version, method = self._parser.get_http_version(), self._parser.get_method().decode()
        lines = [f"{method} {self._url.decode('latin-1')} HTTP/{version}"]
        lines += [f"{n}: {v}" for n, v in self._headers if n.lower() != "upgrade"]
        self._begin_head()
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def _request_of_head(self) -> Request:
        version = self._parser.get_http_version()
        headers = CIMultiDict(self._headers)
        try:
            url = httptools.parse_url(self._url)
        except httptools.HttpParserInvalidURLError:
            raise BadRequest("The request's URL could not be read.") from None
        if version not in ("1.0", "1.1"):
            raise BadRequest("Only HTTP/1.0 and HTTP/1.1 are spoken here.")
        hosts = headers.getall("Host", ())
        if len(hosts) > 1 or (not hosts and version == "1.1"):
            raise BadRequest("A request names exactly one Host.")
        method = self._parser.get_method().decode("latin-1")
        answer = Answer(
            self._transport,
            self._clock.date_line,
            http_1_0=version == "1.0",
            head_only=method == "HEAD",
            close=not self._parser.should_keep_alive(),
            unread=lambda: not body.complete,
        )
        length = headers.get("Content-Length")
        chunked = "Transfer-Encoding" in headers
        body = self._body = Body(
            length=None if chunked else int(length or 0),
            coding=headers.get("Content-Encoding", ""),
            pause=self._pause_reading,
            resume=self._resume_reading,
            wanted=_continue(self._transport, headers.get("Expect"), answer),
        )
        return Request(
            method=method,
            path=(url.path or b"").decode("latin-1"),
            query=(url.query or b"").decode("latin-1"),
            headers=headers,
            body=self._body,
            answer=answer,
        )

    # requests in turn

    def _take(self, request: Request) -> None:
        if self._request is None:
            self._begin(request)
            return
        self._waiting.append(request)
        if len(self._waiting) > MAX_SENT_AHEAD:
            raise BadRequest("Too many requests were sent ahead.")
        self._pause_reading()

    def _begin(self, request: Request) -> None:
        self._request = request
        self._live.began()
        self._task = self._loop.create_task(self._run(request))

    async def _run(self, request: Request) -> None:
        try:
            await self._serve(request)
        finally:
            self._task = None
            self._request = None
            self._live.ended()
            self._after(request)

    def _after(self, request: Request) -> None:
        """The connection's next request, or its end."""
        answer = request.answer
        if self._transport.is_closing():
            return
        if not answer.ended:
            self._transport.close()  # the body's end is missing: it must not look whole
        elif not request.body.complete:
            self._linger()
        elif answer.close_after:
            self._transport.close()
        elif self._waiting:
            self._begin(self._waiting.popleft())
        elif self._closing:
            self._transport.close()
        else:
            self._resume_reading()

    def _linger(self) -> None:
        """The client is still sending what was refused; its bytes are read, and dropped."""
        self._closing = self._deaf = True
        self._resume_reading()
        self._loop.call_later(LINGER_S, self._transport.close)

    def _last(self) -> None:
        """No further request can be read; those that were are answered."""
        self._closing = self._deaf = True
        last = self._waiting[-1] if self._waiting else self._request
        if last is None:
            self._transport.close()
        else:
            last.answer.close_after = True

    def _refuse(self, error: ApiError) -> None:
        """Of a request that could not be read: it is told so, and the connection ends."""
        if self._request is not None:
            self._last()  # those before it are answered; this one never began
            return
        self._closing = self._deaf = True
        answer = Answer(
            self._transport, self._clock.date_line, http_1_0=False, head_only=False, close=True
        )
        body = Body(length=0, coding="", pause=_nothing, resume=_nothing, wanted=_nothing)
        request = Request(
            method="", path="", query="", headers=CIMultiDict(), body=body, answer=answer
        )
        log.debug("a request could not be read: %s", type(error).__name__)
        self._tell(request, error)
        self._linger()

    def close_if_idle(self) -> None:
        """The server ends: what is between two requests need not wait."""
        self._closing = True
        if self._request is None:
            self._transport.close()

    def cut(self) -> None:
        """The server ends now: a request that is still being answered is ended as an error."""
        if self._request is not None and self._task is not None:
            self._request.cut = True
            self._task.cancel()

    def abort(self) -> None:
        self._transport.abort()

    # time and pressure

    def _watch(self) -> None:
        """One timer for each connection, set again when it rings: most never find anything."""
        if self._transport.is_closing():
            self._transport.abort()  # what it still does not read will never be flushed
            return
        now = self._loop.time()
        busy = self._request is not None
        receiving = (self._head_bytes > 0 and self._in_head) or (
            self._body is not None and not self._body.complete and not self._paused
        )
        if busy and not receiving:
            limit = self._rules.idle_s  # its own time limits are the handler's
            self._last_read = now
        else:
            limit = self._rules.read_s if receiving else self._rules.idle_s
        silent = now - self._last_read
        if silent >= limit:
            self._transport.close()
            return
        self._timer = self._loop.call_later(min(limit - silent, self._rules.read_s), self._watch)

    def _pause_reading(self) -> None:
        if not self._paused and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._paused and not self._transport.is_closing():
            self._paused = False
            self._last_read = self._loop.time()
            self._transport.resume_reading()


def _continue(
    transport: asyncio.Transport, expect: str | None, answer: Answer
) -> Callable[[], None]:
    """Tell a client that waits for it to send its body, once."""
    if expect is None:
        return _nothing
    if expect.lower() != "100-continue":
        raise ExpectationFailed("This expectation cannot be met.")
    told = False

    def tell() -> None:
        nonlocal told
        if not told and not answer.begun:
            transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        told = True

    return tell


def _nothing() -> None:
    pass
