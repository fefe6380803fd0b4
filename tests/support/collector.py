"""An OpenTelemetry collector's ears: OTLP over HTTP, decoded by OpenTelemetry's own protobuf."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass(slots=True)
class Collector:
    """Mutable: what came so far, oldest first."""

    url: str = ""
    status: int = 200
    """What it answers."""
    bodies: list[bytes] = field(default_factory=list)

    def spans(self) -> list[Span]:
        return [
            span
            for body in self.bodies
            for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]

    def of_kind(self, kind: Span.SpanKind.ValueType) -> list[Span]:
        return [span for span in self.spans() if span.kind == kind]

    def resource(self) -> dict[str, Any]:
        request = ExportTraceServiceRequest.FromString(self.bodies[0])
        return attributes(request.resource_spans[0].resource)


def attributes(of: Any) -> dict[str, Any]:
    """Of a span or a resource, as Python's values."""
    return {one.key: _value(one.value) for one in of.attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.headers["Content-Type"] == "application/x-protobuf"
            if collector.status == 200:
                collector.bodies.append(body)
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Not into the tests' output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_port}/v1/traces"
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
