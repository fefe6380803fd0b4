"""Requests as OpenTelemetry spans, by the standard SDK, for `[tracing]` only: it is not imported
otherwise.

Two spans for each request: SERVER, from its arrival to its end, and within it CLIENT, from the
choice of a backend on, over all attempts, as the GenAI conventions want it. They hold figures and
names of the configuration, like everything that leaves: no texts, no ids of tokens.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from multidict import CIMultiDict, CIMultiDictProxy
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from prefold import __version__
from prefold.backends.backend import Backend
from prefold.backends.pool import BackendPool
from prefold.measurement.record import RequestRecord
from prefold.proxy.http.request import Request
from prefold.proxy.span_attributes import (
    OPERATIONS,
    backend_failed,
    client_attributes,
    server_attributes,
)

log = logging.getLogger(__name__)

EXPORT_S = 5.0
CLOSE_S = 3.0
"""How long the end of the process waits for the last spans to be taken."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Of one request."""

    server: Span
    client_id: int
    """The span id that backends are told: that of the CLIENT span, which is made at the end."""


class _Ids(RandomIdGenerator):
    """Random ids, but for a span whose id was told before it is made. For one thread."""

    told: int | None = None

    def generate_span_id(self) -> int:
        given, self.told = self.told, None
        return super().generate_span_id() if given is None else given


class Tracing:
    def __init__(
        self,
        *,
        endpoint: str,
        sample: float,
        service_name: str,
        pool: BackendPool,
        clock: Callable[[], float],
    ) -> None:
        """`sample`: of the requests whose client says nothing of it. A thread is started. Headers
        for the collector, and more, come from the standard OTEL_… variables."""
        self._pool = pool
        self._clock = clock
        self._ids = _Ids()
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(sample)),
            resource=Resource.create(
                {"service.name": service_name, "service.version": __version__}
            ),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        exporter = OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_S)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("prefold", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, request: Request, record: RequestRecord) -> Trace | None:
        """The request goes on in the client's trace, or in one of its own: its backend is told, and
        so is the client. None if that failed; the request goes on as it came."""
        try:
            return self._begin(request, record)
        except Exception as error:  # noqa: BLE001 - a fault in tracing fails no request
            log.error("a trace could not be begun: %s", type(error).__name__)
            return None

    def _begin(self, request: Request, record: RequestRecord) -> Trace:
        server = self._tracer.start_span(
            f"{request.method} {record.endpoint}",
            self._context_of(request.headers),
            SpanKind.SERVER,
            attributes={"http.request.method": request.method},
            start_time=self._offset_ns() + _ns(record.received),
        )
        context = server.get_span_context()
        trace = Trace(server, self._ids.generate_span_id())
        if server.is_recording():
            record.trace_id = f"{context.trace_id:032x}"
        headers = CIMultiDict(request.headers)
        headers["traceparent"] = _traceparent(
            context.trace_id, trace.client_id, context.trace_flags
        )
        headers.popall("tracestate", None)
        if context.trace_state:
            headers["tracestate"] = context.trace_state.to_header()
        request.headers = CIMultiDictProxy(headers)
        _tell_client(request, _traceparent(context.trace_id, context.span_id, context.trace_flags))
        return trace

    def end(self, trace: Trace, record: RequestRecord) -> None:
        """The record is complete."""
        try:
            if trace.server.is_recording():
                self._end(trace, record)
        except Exception as error:  # noqa: BLE001 - as above
            log.error("a trace could not be ended: %s", type(error).__name__)

    def _end(self, trace: Trace, record: RequestRecord) -> None:
        offset = self._offset_ns()
        end = offset + _ns(self._clock() if record.end is None else record.end)
        operation = OPERATIONS.get(record.endpoint)
        if operation is not None and record.chosen is not None:
            self._ids.told = trace.client_id
            client = self._tracer.start_span(
                f"{operation} {record.model}".rstrip(),
                set_span_in_context(trace.server),
                SpanKind.CLIENT,
                attributes=client_attributes(record, operation, self._backend(record.backend)),
                start_time=offset + _ns(record.chosen),
            )
            if record.tokens:
                client.add_event("prefold.first_token", timestamp=offset + _ns(record.tokens[0]))
            _judge(client, record, failed=backend_failed(record))
            client.end(end)
        server = trace.server
        server.set_attributes(server_attributes(record))
        for name, moment in (
            ("prefold.parsed", record.parsed),
            ("prefold.encoded", record.encoded),
            ("prefold.compressed", record.compressed),
            ("prefold.chosen", record.chosen),
        ):
            if moment is not None:
                server.add_event(name, timestamp=offset + _ns(moment))
        _judge(server, record, failed=record.status >= 500 or backend_failed(record))
        server.end(end)

    def _backend(self, name: str) -> Backend | None:
        """None: it is gone by now."""
        return self._pool[name] if name in self._pool else None  # noqa: SIM401 - it has no `get`

    def _context_of(self, headers: CIMultiDictProxy[str]) -> Context:
        """An empty one where the client has no trace, or none that is well-formed."""
        if "traceparent" not in headers:
            return Context()
        carrier = {
            "traceparent": headers["traceparent"],
            "tracestate": ",".join(headers.getall("tracestate", ())),
        }
        return self._propagator.extract(carrier, Context())

    def _offset_ns(self) -> int:
        """From our clock to the wall's, as of now: that one may be set while we run."""
        return time.time_ns() - _ns(self._clock())

    def close(self) -> None:
        """What is left is sent, if somebody takes it in time; blocks for so long. No more spans."""
        closing = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        closing.start()
        closing.join(CLOSE_S)


def _judge(span: Span, record: RequestRecord, *, failed: bool) -> None:
    """An error's class, never its text; a client that left, or asked for nonsense, is none."""
    if failed:
        span.set_attribute("error.type", record.error or str(record.outcome))
        span.set_status(Status(StatusCode.ERROR))


def _tell_client(request: Request, traceresponse: str) -> None:
    before = request.answer.on_begin

    def add(headers: CIMultiDict[str]) -> None:
        if before is not None:
            before(headers)
        headers["traceresponse"] = traceresponse

    request.answer.on_begin = add


def _traceparent(trace_id: int, span_id: int, flags: int) -> str:
    """W3C Trace Context, level 1; `traceresponse` of its level 2 has the same form."""
    return f"00-{trace_id:032x}-{span_id:016x}-{flags:02x}"


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
