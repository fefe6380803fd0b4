"""Paths whose prompt prefold does not look into: passed by load, bytes unchanged both ways."""

from __future__ import annotations

import json
from collections.abc import Callable

from aiohttp import web

from prefold.backends.backend import Lease
from prefold.backends.client import Client
from prefold.backends.errors import BackendError, UpstreamTimeout
from prefold.backends.health import Outcome
from prefold.backends.pool import BackendPool
from prefold.measurement.record import RequestOutcome, RequestRecord
from prefold.proxy.catalog import ModelCatalog
from prefold.proxy.errors import NoBackendAvailable, UpstreamFailed, UpstreamTimedOut
from prefold.proxy.exchange import outcome_of_error, outcome_of_status
from prefold.proxy.headers import downstream_headers, upstream_headers
from prefold.proxy.openai import named_model, with_member
from prefold.proxy.recording import recorded
from prefold.proxy.relay import send_raw
from prefold.proxy.request_body import read_body


class Passthrough:
    def __init__(
        self,
        *,
        client: Client,
        pool: BackendPool,
        catalog: ModelCatalog,
        observe: Callable[[RequestRecord], None],
        clock: Callable[[], float],
        write_s: float,
    ) -> None:
        self._write_s = write_s
        self._client = client
        self._pool = pool
        self._catalog = catalog
        self._observe = observe
        self._clock = clock

    async def run(self, request: web.Request, path: str) -> web.StreamResponse:
        """Raises ApiError while nothing has been sent, ClientGone once nobody listens."""
        with recorded(path, self._observe, self._clock) as record:
            body = await read_body(request)
            body = self._resolve(body, record)
            record.parsed = self._clock()
            return await self._forward(request, path, body, record)

    def _resolve(self, body: bytes, record: RequestRecord) -> bytes:
        """A JSON body names its model; others (multipart) go to any backend."""
        name = named_model(body)
        if name is None:
            return body
        record.model = self._catalog.resolve(name, self._pool.models())
        if record.model == name:
            return body
        return with_member(body, "model", json.dumps(record.model))

    async def _forward(
        self, request: web.Request, path: str, body: bytes, record: RequestRecord
    ) -> web.StreamResponse:
        candidates = self._pool.candidates(record.model or None, self._clock())
        if not candidates:
            raise NoBackendAvailable("No backend for this model is available now.")
        backend = min(candidates, key=lambda backend: (backend.in_flight, backend.queued_tokens))
        record.backend, record.reason, record.attempts = backend.name, "load", 1
        lease = Lease(backend, 0, self._clock())
        outcome = Outcome.NEUTRAL
        upstream = None
        try:
            headers = upstream_headers(request.headers, backend.headers)
            record.sent = self._clock()
            upstream = await self._client.send(
                "POST", backend.url + path, headers=headers, body=body
            )
            outcome = outcome_of_status(upstream.status)
            record.headers, record.status = self._clock(), upstream.status
            ok = upstream.status < 400
            record.outcome = RequestOutcome.OK if ok else RequestOutcome.UPSTREAM_ERROR
            kept = downstream_headers(upstream.headers)
            response, failure = await send_raw(
                request, upstream.status, kept, upstream.chunks(), self._write_s
            )
            if failure is not None:
                outcome, record.outcome = Outcome.FAILURE, RequestOutcome.UPSTREAM_FAILED
            return response
        except BackendError as error:
            outcome = outcome_of_error(backend, error)
            if isinstance(error, UpstreamTimeout):
                raise UpstreamTimedOut("The backend did not answer in time.") from error
            raise UpstreamFailed("The backend failed before it answered.") from error
        finally:
            if upstream is not None:
                upstream.close()
            lease.release(outcome, self._clock())
