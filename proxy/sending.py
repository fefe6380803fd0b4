"""What one backend is sent: the client's bytes, with the few members that this backend needs."""

from __future__ import annotations

import json
from collections.abc import Callable

from prefold.backends.backend import Backend
from prefold.backends.client import Client
from prefold.measurement.record import RequestRecord
from prefold.proxy.call import Call
from prefold.proxy.exchange import Exchange
from prefold.proxy.headers import upstream_headers
from prefold.proxy.openai import with_member


async def send(
    client: Client,
    call: Call,
    exchange: Exchange,
    record: RequestRecord,
    clock: Callable[[], float],
) -> None:
    """Raises BackendError, or BadRequest if the body cannot be altered as it must."""
    backend = exchange.backend
    body = call.body
    ask = call.usage_wanted and backend.engine is not None and backend.engine.needs_include_usage
    if isinstance(body, bytes):
        body = _altered(body, call, backend, ask)
    headers = upstream_headers(call.headers, backend.headers, pass_keys=backend.pass_client_key)
    headers.setdefault("X-Request-Id", call.request_id)
    record.sent = clock()
    await exchange.send(client, call.method, call.target, headers, body, strip_usage=ask)
    record.headers = exchange.headers_at
    record.first_event = clock()


def _altered(body: bytes, call: Call, backend: Backend, ask: bool) -> bytes:
    if ask:
        body = with_member(body, "stream_options", '{"include_usage":true}')
    if call.salt is not None and backend.engine is not None and backend.engine.knows_cache_salt:
        body = with_member(body, "cache_salt", json.dumps(call.salt))
    return body
