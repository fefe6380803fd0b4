"""Connections to LLM servers, each carrying one exchange at a time: two gaps of aiohttp are closed
here, with what it makes public. Seen on 3.14.5; tests on raw sockets tell when they are gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakKeyDictionary, ref

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.tracing import Trace


class Connections(aiohttp.TCPConnector):
    def __init__(self, *, keepalive_s: float, dns_cache_s: int) -> None:
        super().__init__(
            limit=0,  # in-flight requests are bounded by leases, not by hidden queueing
            keepalive_timeout=keepalive_s,
            ttl_dns_cache=dns_cache_s,
        )
        self._bodies: WeakKeyDictionary[ResponseHandler, aiohttp.StreamReader] = WeakKeyDictionary()

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - as in the base class
    ) -> Connection:
        """A server may have sent more than it was asked for while its connection lay idle. aiohttp
        would take that for the next request's answer."""
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            if protocol is None or not protocol.should_close:
                return connection
            connection.close()

    def watch(self, response: aiohttp.ClientResponse) -> None:
        """Let the end of the connection end the body, too. A chunk that cannot be parsed closes the
        connection, but aiohttp does not tell those who read the body: they would wait on."""
        connection = response.connection
        protocol = connection.protocol if connection is not None else None
        if protocol is None:
            return  # the body is here, whole
        closed = protocol.closed
        if closed is None:  # it is lost already
            _end(response.content)
            return
        if protocol not in self._bodies:
            closed.add_done_callback(_when_closed(self._bodies, protocol))
        self._bodies[protocol] = response.content


def _when_closed(
    bodies: WeakKeyDictionary[ResponseHandler, aiohttp.StreamReader], protocol: ResponseHandler
) -> Callable[[asyncio.Future[None]], None]:
    weak = ref(protocol)

    def ended(closed: asyncio.Future[None]) -> None:
        if not closed.cancelled():
            closed.exception()  # asyncio logs what nobody has looked at
        protocol = weak()
        body = bodies.pop(protocol, None) if protocol is not None else None
        if body is not None:
            _end(body)

    return ended


def _end(body: aiohttp.StreamReader) -> None:
    """A body that lasts as long as its connection has been told already that this is its end."""
    if not body.is_eof() and body.exception() is None:
        body.set_exception(aiohttp.ClientPayloadError("the connection ended before the body"))
