"""A fake OpenTelemetry collector: decodes what it gets with the official message types."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class FakeCollector:
    """What was exported; `status` is its answer to each request."""

    def __init__(self) -> None:
        self.traces: list[Any] = []
        self.metrics: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.requests = 0
        self.url = ""

    def spans(self) -> list[Any]:
        return [
            span
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def metric_names(self) -> set[str]:
        return {
            metric.name
            for request in self.metrics
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def receive(self, path: str, body: bytes) -> None:
        kinds: dict[str, tuple[Any, list[Any]]] = {
            "/v1/traces": (ExportTraceServiceRequest, self.traces),
            "/v1/metrics": (ExportMetricsServiceRequest, self.metrics),
        }
        kind, received = kinds[path]
        request = kind()
        request.ParseFromString(body)
        received.append(request)


def attributes(span: Any) -> dict[str, Any]:
    """Return the attributes of a span as plain values."""
    found = {}
    for each in span.attributes:
        found[each.key] = getattr(each.value, each.value.WhichOneof("value"))
    return found


@contextmanager
def running_collector() -> Iterator[FakeCollector]:
    """Run a collector on a free port of this machine."""
    collector = FakeCollector()

    class CollectorHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.requests += 1
            collector.headers.append(dict(self.headers))
            if collector.status == 200:
                collector.receive(self.path, body)
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), CollectorHandler)
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
