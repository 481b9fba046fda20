"""A collector of traces: takes what OpenTelemetry's exporters send, and keeps it."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Seen(NamedTuple):
    """One span that arrived."""

    service: str
    name: str
    trace: bytes
    span: bytes
    parent: bytes


class Collector(ThreadingHTTPServer):
    """Listens on a free port until the block ends."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[Seen] = []

    @property
    def endpoint(self) -> str:
        """Settings of the traced processes."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def children(self, parent: Seen) -> list[Seen]:
        """Spans begun within another."""
        return [span for span in self.seen if (span.trace, span.parent) == (parent.trace, parent.span)]


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        export = ExportTraceServiceRequest.FromString(
            gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        )
        for group in export.resource_spans:
            service = next(
                attribute.value.string_value
                for attribute in group.resource.attributes
                if attribute.key == "service.name"
            )
            for scope in group.scope_spans:
                self.server.seen += [
                    Seen(service, span.name, span.trace_id, span.span_id, span.parent_span_id) for span in scope.spans
                ]
        self.send_response(200 if self.path == "/v1/traces" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *values: object) -> None:
        """Nothing."""


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector that listens."""
    with Collector() as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
