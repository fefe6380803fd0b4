"""The answer to one request, as bytes on its connection. Nothing is written before there is a body
to go with the head: one write, one packet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus

from multidict import CIMultiDict

JOIN_BELOW = 64 * 1024
"""Bytes that are cheaper to copy into one buffer than to write as three."""
_REASONS = {status.value: status.phrase for status in HTTPStatus}
BODILESS = frozenset((204, 304))


class ClientGone(Exception):
    """The client's connection ended before its response did."""


class Answer:
    """Mutable. `begin`, `write` as often as wanted, then `end` or `abort`."""

    def __init__(
        self,
        transport: asyncio.Transport,
        date_line: Callable[[], str],
        *,
        http_1_0: bool,
        head_only: bool,
        close: bool,
        unread: Callable[[], bool] = lambda: False,
    ) -> None:
        """`unread`: whether the request's body is still to come."""
        self._unread = unread
        self._transport = transport
        self._date_line = date_line
        self._http_1_0 = http_1_0
        self._head_only = head_only
        self._head: bytes | None = None
        self._chunked = False
        self._writable: asyncio.Future[None] | None = None
        self._on_writable: Callable[[], None] | None = None
        self.on_begin: Callable[[CIMultiDict[str]], None] | None = None
        """Has the last word on the headers."""
        self.begun = False
        self.ended = False
        self.close_after = close
        """The connection cannot carry another request: asked for, or the body was not read."""

    @property
    def open(self) -> bool:
        """Somebody may still read."""
        return not self._transport.is_closing()

    @property
    def waiting(self) -> bool:
        """The client has yet to take what was written."""
        return self._writable is not None

    def begin(self, status: int, headers: CIMultiDict[str], length: int | None) -> None:
        """`length` None: it is not known, so the body goes in chunks. The head waits for the first
        write. Raises ClientGone."""
        if not self.open:
            raise ClientGone
        self.begun = True
        if self.on_begin is not None:
            self.on_begin(headers)
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if "Date" not in headers:
            lines.append(self._date_line())
        if status in BODILESS:
            self._head_only = True
        elif length is not None:
            lines.append(f"Content-Length: {length}")
        elif self._http_1_0:
            self.close_after = True
        else:
            self._chunked = not self._head_only
            lines.append("Transfer-Encoding: chunked")
        if length is not None and self._unread():
            self.close_after = True
        # Never on a stream: with it, Node takes a cut body for a whole one.
        if self.close_after and (length is not None or self._http_1_0):
            lines.append("Connection: close")
        self._head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")

    def write(self, data: bytes) -> bool:
        """False: the client has yet to take what was written, so more should wait for `drained`."""
        head, self._head = self._head or b"", None
        if not self.open:
            return True  # uvloop's transport throws once it is closed
        if self._head_only:
            data = b""
        if self._chunked and data:
            if len(data) < JOIN_BELOW:
                self._transport.write(b"%b%x\r\n%b\r\n" % (head, len(data), data))
            else:
                self._transport.writelines((b"%b%x\r\n" % (head, len(data)), data, b"\r\n"))
        elif head or data:
            self._transport.write(head + data if head else data)
        return self._writable is None

    def end(self, last: bytes = b"") -> None:
        """The body is whole, with `last`."""
        if self.ended:
            return
        head, self._head = self._head or b"", None
        self.ended = True
        if not self.open:
            return
        if self._head_only:
            last = b""
        if self._chunked:
            framed = b"%x\r\n%b\r\n" % (len(last), last) if last else b""
            self._transport.write(b"%b%b0\r\n\r\n" % (head, framed))
        elif head or last:
            self._transport.write(head + last if len(last) < JOIN_BELOW else head)
            if len(last) >= JOIN_BELOW:
                self._transport.write(last)

    def abort(self) -> None:
        """Close after what was written, without the end that would make it whole."""
        if self._head is not None:
            self.write(b"")
        self.ended = True
        if not self._head_only:  # to a HEAD the head is all, and the connection may go on
            self._transport.close()

    def reset(self) -> None:
        """Close at once: what is not read cannot be flushed."""
        self.ended = True
        self._transport.abort()

    async def drained(self, seconds: float) -> None:
        """Until the client has taken most of what was written; raises ClientGone where it does not
        for so long, or has left."""
        if self._writable is not None:
            try:
                async with asyncio.timeout(seconds):
                    await asyncio.shield(self._writable)
            except TimeoutError:
                self.reset()
                raise ClientGone from None
        if not self.open:
            raise ClientGone

    def when_drained(self, then: Callable[[], None]) -> None:
        """`then` is called once the client has taken most of what was written."""
        self._on_writable = then

    def pause(self) -> None:
        """The transport's buffer is full."""
        if self._writable is None:
            self._writable = asyncio.get_running_loop().create_future()

    def resume(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)
        then, self._on_writable = self._on_writable, None
        if then is not None:
            then()


class Clock:
    """The `Date` line, made once a second."""

    def __init__(self) -> None:
        self._at = 0
        self._line = ""

    def date_line(self) -> str:
        now = int(time.time())
        if now != self._at:
            self._at, self._line = now, f"Date: {formatdate(now, usegmt=True)}"
        return self._line
